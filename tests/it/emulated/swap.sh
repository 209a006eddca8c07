# One gang stands, and its memory goes to swap before anybody needs the room: one more sits where one may be
# resident. It has all of it again when its turn comes.
. /prelude.sh
STATE=/run/state
CONFIG='variables: { application.level.bound: 3s, application.max_resident: 1, kill_grace: 1s }'
mkswap /dev/vda >/dev/null
ln -s /bin/*-pages /bin/pages
daemons

apstat -n -v >/tmp/nodes
has "that there is no swap is said of the nodes" /tmp/nodes " no swap "
aprun -q -n 4 -N 2 sleep 1000 &
eventually 30 "the first runs" sh -c 'apstat -a | grep -q running'
aprun -q -n 4 -N 2 sleep 1000 &
eventually 30 "the second waits" sh -c 'apstat -a | grep -q posted'
apstat --why 2 >/tmp/why
has "why is said" /tmp/why "(no roll-out here: NIDs 0-1 have no swap)"
apkill 1 2
eventually 30 "both have ended" sh -c '! apstat -a | grep -qE "running|posted"'

# Nodes find out by themselves.
swapon /dev/vda && ok "there is swap"
eventually 20 "that there is swap is said" sh -c 'apstat -n -v | grep -q " yes "'

# What application $1 has of memory.$2 on both nodes, in MB.
of() {
    sum=0
    for file in /sys/fs/cgroup/apinit/psched.*/$1.1/[01]/memory.$2; do
        read -r bytes <"$file" || bytes=0
        sum=$((sum + bytes / 1048576))
    done
    echo $sum
}
# has_come WHAT APPLICATION FILE MEGABYTES: it has so much there within a minute or so.
has_come() {
    tries=0
    until [ "$(of $2 $3)" -ge $4 ] || [ $tries -ge 100 ]; do
        tries=$((tries + 1))
        sleep 0.5
    done
    [ "$(of $2 $3)" -ge $4 ] && ok "$1" || no "$1" "$(of $2 $3) MB"
}
# Each has 240 MB, again and again: the host has room for both.
aprun -q -n 4 -N 2 pages 60 /tmp/stop1 >/tmp/one 2>/tmp/err1 &
one=$!
eventually 30 "it runs" sh -c 'apstat -a | grep -q running'
has_come "it has all its memory" 3 current 240
# (One that comes is before it for about as long as this one has run by then: long enough for a busy host to
# write all of it.)
sleep 30
aprun -q -n 4 -N 2 pages 60 /tmp/stop2 >/tmp/two 2>/tmp/err2 &
two=$!
eventually 20 "one more runs" sh -c '[ "$(apstat -a | grep -c running)" = 2 ]' || { apstat -a; apstat --why 4; }
has_come "who stands is in swap" 3 swap.current 180
echo "who stands: $(of 3 current) MB, in swap $(of 3 swap.current); who runs: $(of 4 current), $(of 4 swap.current)"
[ "$(of 4 swap.current)" -lt 50 ] && ok "who runs is not" || no "who runs is not" "$(of 4 swap.current) MB"
eventually 20 "it is told" sh -c 'apstat --events 3 | grep -q "rolled-out .* in swap"'
eventually 20 "it is said of it" sh -c 'apstat --why 3 | grep -qF "its memory goes to swap ("' && ok "it is said of it"

# The next lives of psched and of apinit find everything as it is.
kill -9 $psched_pid $apinit_pid
psched --config /run/psched.yaml 2>>/run/psched.log &
psched_pid=$!
eventually 30 "psched listens again" test -S /run/psched/psched.sock
start_apinit
eventually 30 "both are found" sh -c '[ "$(apstat -a | grep -c running)" = 2 ]'

# It comes in again, and nothing of it is another's.
>/tmp/stop2
wait $two
is "who ran ends well" "$?" 0
>/tmp/stop1
wait $one
is "who stood ends well" "$?" 0
cat /tmp/one /tmp/two /tmp/err1 /tmp/err2
is "nothing was lost" "$(cat /tmp/one /tmp/two | grep -c 'rounds$')" 8
apstat --events 3
grep -E 'pswp(in|out)' /proc/vmstat
grep -v '^$' /run/apinit.log | tail -20
echo @@end
