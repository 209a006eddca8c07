# Limits of memory and processes, and what is told when they are reached.
. /prelude.sh
STATE=/run/state
CONFIG='variables: { pids_max: 40, kill_grace: 1s, application.max_resident: 1 }'
daemons

apstat -n >/tmp/nodes
has "a node's limits are shown" /tmp/nodes "memory,processes,processors"
is "apinit sits in a leaf" "$(cat /proc/$apinit_pid/cgroup)" "0::/apinit/psched.daemon"

# fill MEGABYTES: a process of that size.
fill() { dd if=/dev/zero of=/dev/null bs="$1"M count=1 2>/dev/null; }

aprun -n 1 -m 200M dd if=/dev/zero of=/dev/null bs=100M count=1 >/tmp/out 2>/tmp/err
is "within its limit a PE runs" "$?" 0
aprun -n 1 dd if=/dev/zero of=/dev/null bs=300M count=1 >/tmp/out 2>/tmp/err
is "without -m there is none" "$?" 0

# More than the machine has: the kernel looks for the largest process, and the daemons are spared.
aprun -n 1 dd if=/dev/zero of=/dev/null bs=1400M count=1 >/tmp/out 2>/tmp/err
is "what is more than the host has is killed" "$?" 137
has "that is told" /tmp/err "the host of NID 0 ran out of memory, and the kernel killed PE 0"

one='[ "$PMI_RANK" != 1 ] || exec dd if=/dev/zero of=/dev/null bs=100M count=1; exec sleep 100'
aprun -n 2 -N 2 -m 40M sh -c "$one" >/tmp/out 2>/tmp/err
is "over its limit it is killed" "$?" 137

has "that is told by name" /tmp/err "NID 0 went over 80M (2 PEs x 40M); largest: PE 1, "
has "and once" /tmp/err "Application 4 exit signals: Killed"
is "on one line" "$(grep -c 'went over' /tmp/err)" 1

# What a PE has started counts as its own, and PEs on other nodes are ended too.
child='[ "$PMI_RANK" != 3 ] || { dd if=/dev/zero of=/dev/null bs=100M count=1; true; }; sleep 100'
begun=$(date +%s)
aprun -n 4 -N 2 -m 40M sh -c "$child" >/tmp/out 2>/tmp/err
is "a child of a PE is killed likewise" "$?" 137

has "it counts as the PE's" /tmp/err "NID 1 went over 80M (2 PEs x 40M); largest: PE 3, "
[ $(($(date +%s) - begun)) -lt 20 ] && ok "nobody is waited for"

# A user's, after apinit has been killed and started again.
su alice -c "aprun -n 2 -N 2 -m 40M sh -c 'sleep 5; $one'" >/tmp/out 2>/tmp/err &
aprun_pid=$!
eventually 20 "it runs" sh -c 'apstat -a | grep -q running' && ok "a user's program runs"
kill -9 $apinit_pid
start_apinit
wait $aprun_pid
is "limits outlive apinit" "$?" 137
has "and are told" /tmp/err "NID 0 went over 80M (2 PEs x 40M); largest: PE 1, "
eventually 30 "nodes are free" sh -c 'apstat -n | grep -q "0 x86_64 free"'

# (They are to be there all at once, however long each takes to be made.)
forks='i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i + 1)); done; wait'
aprun -n 1 sh -c "$forks" >/tmp/out 2>/tmp/err

has "a fork too many is told" /tmp/err "a fork failed on NID 0: the application has the maximum of 40 processes and threads there (variable pids_max)"
is "once" "$(grep -c pids_max /tmp/err)" 1
aprun -n 1 true >/tmp/out 2>/tmp/err
is "the next one has its own forty" "$?" 0

# Nobody waits for this one's work: it left its parent and its session.
away='setsid sh -c "(timeout 3 yes >/dev/null; :) &" & sleep 5'
aprun --closing alps -n 1 sh -c "$away" >/tmp/out 2>/tmp/err
is "an escaped process ends by itself" "$?" 0

used=$(sed -n 's/.*utime ~\([0-9]*\)s, stime ~\([0-9]*\)s.*/\1 \2/p' /tmp/err)
[ $((${used% *} + ${used#* })) -ge 2 ] && ok "its processor time is accounted" || no "time" "$used"

# cgroup.kill: a shepherd that is gone takes everything with it, also what escaped. (The PE stays: a
# setsid that leads its group forks, and then the PE would have ended well.)
aprun -n 1 sh -c 'setsid sh -c "sleep 1234 &"; setsid sleep 1235 & wait' >/tmp/out 2>/tmp/err &
aprun_pid=$!
eventually 20 "it runs" sh -c 'pidof sleep | grep -q " "' && ok "it has escaped"
kill -9 $(pidof apshepherd)
wait $aprun_pid
is "without its shepherd it is lost" "$?" 125
is "and nothing of it is left" "$(pidof sleep)" ""
# (A group goes when the last of its processes has been waited for.)
no_groups() { [ -z "$(find /sys/fs/cgroup/apinit -name 'psched.????????' 2>/dev/null)" ]; }
eventually 20 "groups neither" no_groups && ok "groups neither"

# Without -m memory counts as it is measured, and a sixteenth of a node's is kept for those who sit there.
psmgr set application.max_resident=1024 >/dev/null
full='head -c 170000000 /dev/zero >/dev/shm/x; exec sleep 1000'
for one in 1 2 3; do
    aprun -q -L 0 -n 1 sh -c "$full" >/tmp/out 2>/tmp/err &
    eventually 20 "it runs" sh -c "[ \$(apstat -a | grep -c running) = $one ]"
done
# (It is measured when they have had a turn.)
known() { [ "$(psview --json | grep -c '"peak_memory": 17[0-9]*')" = 3 ]; }
eventually 60 "their memory is known" known
aprun -q -L 0 -n 1 sleep 1000 &
eventually 20 "the newest waits" sh -c 'apstat -a | grep -q posted' && ok "the newest waits"
apid=$(apstat -a | sed -n 's/^ *\([0-9]*\) .* posted .*/\1/p')
apstat --why "$apid" >/tmp/why
has "for memory" /tmp/why "32M of memory"
has "and is told what helps" /tmp/why "with -m, which says how much it needs"
aprun -q -L 0 -n 1 -m 1M true
is "who says how little he needs goes before" "$?" 0

echo @@end
