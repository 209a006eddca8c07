# Walls between gangs where every controller is there: nobody moves a PE, nor takes another's processor.
. /prelude.sh
STATE=/run/state
PROCESSORS=1
CONFIG='variables: { application.max_resident: 1 }'
daemons
apstat -n >/tmp/nodes
has "processors are confined" /tmp/nodes "memory,processes,processors"
if grep -q "not enforced" /tmp/nodes; then no "notes" "$(cat /tmp/nodes)"; else ok "nothing is missing"; fi

cpus() { sed -n 's/^Cpus_allowed_list:[^0-9]*//p' "/proc/$1/status"; }

# A user's process that is no PE writes PEs' pids into every group that it can open.
cat >/tmp/accomplice <<'END'
while [ ! -e /tmp/over ]; do
    for group in /sys/fs/cgroup/apinit/psched.????????/*.1 /sys/fs/cgroup/apinit/psched.????????/*.1/*/; do
        for pid in $(pidof sh cat sleep); do
            (echo "$pid" >"$group/cgroup.procs") 2>/dev/null && echo "$pid to $group" >>/tmp/moved
        done
    done
done
END
su alice -c 'sh /tmp/accomplice' &
accomplice_pid=$!
for n in 1 2 3; do
    su alice -c 'aprun -q -n 2 -N 1 cat /proc/self/cgroup' >/tmp/out 2>/tmp/err
    is "launch $n" "$? $(sed 's/.*\.1\///' /tmp/out | sort | tr '\n' ' ')" "0 0 1 "
done
touch /tmp/over
wait $accomplice_pid
is "nobody was moved" "$(cat /tmp/moved 2>/dev/null)" ""

# One to each processor; the second asks for the first one's.
aprun -q -n 1 sh -c 'while :; do :; done' &
first_aprun=$!
eventually 30 "it runs" sh -c 'apstat -a | grep -q running'
su alice -c 'aprun -q -n 1 sh -c "taskset -p 3 \$\$ >/dev/null; taskset -p 1 \$\$ >/dev/null; while :; do :; done"' 2>/tmp/err &
second_aprun=$!
eventually 30 "both run" sh -c '[ "$(apstat -a | grep -c running)" = 2 ]'
groups=$(echo /sys/fs/cgroup/apinit/psched.????????)
pids=""
for app in 4 5; do
    for nid in 0 1; do
        group=$groups/$app.1/$nid
        [ -d "$group" ] || continue
        # Its size says nothing: it is the kernel that writes it.
        eventually 30 "a PE is there" grep -q . "$group/cgroup.procs"
        pids="$pids $(head -n 1 "$group/cgroup.procs")"
        is "application $app has one processor" "$(cat "$group/cpuset.cpus.effective")" "$((app - 4))"
    done
done
set -- $pids
is "two are there" "$#" 2
is "the first has its own" "$(cpus "$1")" 0
is "the second has its own" "$(cpus "$2")" 1
taskset -p 1 "$2" >/dev/null 2>&1
is "root's word does not help it" "$(cpus "$2")" 1
# Both run, each on its own processor only, however often it is looked and whatever else the machine has to do.
ran() { cut -d ' ' -f 1 "/proc/$1/schedstat"; }
sits_on() { cut -d ' ' -f 39 "/proc/$1/stat"; }
first_ran=$(ran "$1") second_ran=$(ran "$2") seen="" looks=0
has_run() { [ "$(ran "$1")" -ge $(($2 + 1000000000)) ]; }
until has_run "$1" "$first_ran" && has_run "$2" "$second_ran"; do
    looks=$((looks + 1))
    [ $looks -le 3000 ] || { no "both run" "$(cat "/proc/$1/schedstat" "/proc/$2/schedstat")"; break; }
    now="$(sits_on "$1") $(sits_on "$2")"
    [ "$now" = "0 1" ] || seen="$seen $now"
    sleep 0.02
done
is "each is on its own processor, $looks times" "$seen" ""
apkill -9 4 5
wait $first_aprun $second_aprun

# Not bound is not free either.
aprun -q -n 1 -cc none sh -c 'sed -n "s/^Cpus_allowed_list:[^0-9]*//p" /proc/self/status' >/tmp/out 2>/tmp/err
is "-cc none stays on its own" "$(cat /tmp/out)" 0

# It moves, and its group with it.
aprun -q -n 1 sh -c 'while :; do sleep 0.1; done' &
aprun_pid=$!
eventually 30 "it runs" sh -c 'apstat -a | grep -q running'
group=$groups/7.1/0
is "before its move" "$(cat "$group/cpuset.cpus")" 0
psmgr migrate 7 1 >/tmp/out 2>&1 || no "migrate" "$(cat /tmp/out)"
eventually 30 "it has moved" grep -qx 1 "$group/cpuset.cpus"
pid=$(head -n 1 "$group/cgroup.procs")
eventually 30 "its PE is bound there" sh -c "grep -q '^Cpus_allowed_list:[^0-9]*1$' /proc/$pid/status"
is "its PE is bound there" "$(cpus "$pid")" 1
apkill -9 7
wait $aprun_pid
echo @@end
