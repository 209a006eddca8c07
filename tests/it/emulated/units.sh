# As systemd starts the units: each daemon begins in its unit's own group, also when it is started
# again, and applications with limits run meanwhile.
. /prelude.sh
STATE=/run/state
CONFIG='variables: { kill_grace: 1s, application.max_resident: 1 }'
export NOTIFY_SOCKET=/run/nobody

# unit GROUP COMMAND...: the group's own process, or 219 as systemd has it.
unit() {
    mkdir -p "/sys/fs/cgroup/$1"
    echo 0 >"/sys/fs/cgroup/$1/cgroup.procs" || exit 219
    shift
    exec "$@"
}

start_apinit() {
    (unit apinit.service apinit --socket /run/psched/psched.sock --nids 0-1 $WHERE 2>>/run/apinit.log) &
    apinit_pid=$!
}

echo "+memory +pids +cpu +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
(unit psched-groups.service apinit --hold-groups 2>/run/groups.log) &
holder_pid=$!
held=/sys/fs/cgroup/psched-groups.service
eventually 20 "the group is held" grep -q memory $held/cgroup.subtree_control && ok "the group is held"
WHERE='--groups /psched-groups.service'
daemons

apstat -n >/tmp/nodes
has "limits are there" /tmp/nodes "memory,processes,processors"
aprun -n 2 -N 2 -m 40M sleep 1000 >/tmp/out 2>/tmp/err &
aprun_pid=$!
eventually 20 "it runs" sh -c 'apstat -a | grep -q running' && ok "it runs"
is "it is where it belongs" "$(find $held -name 'psched.????????' | wc -l)" 1
is "nothing is enabled below apinit" "$(cat /sys/fs/cgroup/apinit.service/cgroup.subtree_control)" ""

kill -9 $apinit_pid
wait $apinit_pid
start_apinit
eventually 30 "apinit is back" sh -c '[ -S /run/psched/apinit-0.sock ]' && ok "apinit is back"
eventually 30 "it still runs" sh -c 'apstat -a | grep -q running' && ok "it still runs"
kill -0 $apinit_pid && ok "apinit was started in its unit's group" || no "apinit" "it has ended"

# The holder may go: applications stay, and their limits.
kill -9 $holder_pid
is "applications stay" "$(find $held -name 'psched.????????' | wc -l)" 1
apkill 1
wait $aprun_pid
is "it is ended" "$?" 143

# Without another unit's group nothing is enabled, and that is said.
kill $apinit_pid
wait $apinit_pid
WHERE=
start_apinit
eventually 30 "it is said" sh -c 'apstat -n | grep -q psched-groups.service' && ok "it is said"
is "nor now" "$(cat /sys/fs/cgroup/apinit.service/cgroup.subtree_control)" ""

echo @@end
