# Two gangs on both nodes, which together have more memory than the host, take turns through swap.
. /prelude.sh
STATE=/run/state
CONFIG='variables: { application.level.bound: 365d, application.max_resident: 4, application.time_slice: 1s, application.switch_share: 25%, application.memory_overcommit: 4, kill_grace: 1s }'
mkswap /dev/vda >/dev/null && swapon /dev/vda && ok "there is swap"
ln -s /bin/*-pages /bin/pages
daemons
# What administrators allow applications to keep (systemd: MemoryMin=).
apstat -n >/tmp/nodes
has "that nothing can be kept is said" /tmp/nodes "memory.min of"
echo max >/sys/fs/cgroup/apinit/memory.min
kill $apinit_pid
wait $apinit_pid
start_apinit
eventually 30 "nodes are free" sh -c 'apstat -n | grep -q "0 x86_64 free"'
apstat -n >/tmp/nodes
grep -q "memory.min of" /tmp/nodes && no "it is allowed now" "$(cat /tmp/nodes)" || ok "it is allowed now"

free -m
# Each has 700 MB, again and again; the host has about 1,200 to give. The second has a limit.
aprun -q -n 4 -N 2 pages 175 /tmp/stop >/tmp/one 2>/tmp/err1 &
one=$!
eventually 60 "the first runs" sh -c 'apstat -a | grep -q running'
aprun -q -n 4 -N 2 -m 200M pages 175 /tmp/stop >/tmp/two 2>/tmp/err2 &
two=$!

# What application $1 has at an instant on node 0: frozen, memory.min, memory.swap.max. Nothing is forked, so
# that few changes of party are looked at in the middle.
look() {
    node=$(echo /sys/fs/cgroup/apinit/psched.*/$1.1/0)
    read -r frozen <$node/cgroup.freeze && read -r min <$node/memory.min &&
        read -r above <$node/../memory.min && read -r swap <$node/memory.swap.max || return 1
    [ "$min" = 0 ] && kept=0 || kept=1
    [ "$above" -ge "$min" ] && above=more || above=less
    seen="$1 frozen $frozen kept $kept above $above swap $swap"
    # (Of one with a limit, swap is taken away before its memory is kept and it is let run.)
    [ "$frozen" != "$kept" ] && { [ "$frozen" = 0 ] || [ "$swap" = max ]; }
}
# As it is when no change is being made; before its first turn by a plan nothing of it is kept.
look_well() {
    tries=0
    until look $1 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 10 ] || break
        sleep 0.1
    done
    echo "$seen" >>/tmp/looks
}
# The slices in tenths of a second, as they were told.
slices() {
    sed -n 's/^[> ] *[0-9]*  *\([0-9.]*\)\(ms\|s\|m\) .*[*+].*/\1 \2/p' /tmp/views | while read -r length unit; do
        whole=${length%.*}
        tenths=0
        [ "$whole" = "$length" ] || tenths=${length#*.}
        case $unit in
        ms) echo $((whole / 100)) ;;
        s) echo $((whole * 10 + tenths)) ;;
        m) echo $((whole * 600)) ;;
        esac
    done | sort -n | uniq -c
}
longest() { slices | tail -n 1 | sed 's/.* //'; }
# Both have stood and have run, memory has come in, and slices are longer for it.
enough() {
    grep -q "^1 frozen 0 kept 1" /tmp/looks && grep -q "^1 frozen 1" /tmp/looks &&
        grep -q "^2 frozen 0 kept 1" /tmp/looks && grep -q "^2 frozen 1" /tmp/looks &&
        grep -q "Memory brought in: " /tmp/views && [ "$(longest)" -gt 10 ]
}
: >/tmp/looks
: >/tmp/views
eventually 60 "both have turns" sh -c 'psview | grep -q "^  *2  "'
turns=0
until enough || [ $turns -ge 400 ]; do
    look_well 1
    look_well 2
    psview >>/tmp/views
    turns=$((turns + 1))
    sleep 0.25
done
enough && ok "memory has come in, and slices are longer for it" || no "in $turns looks" "not all was seen"
psview
>/tmp/stop
wait $one
is "the first ends well" "$?" 0
wait $two
is "the second ends well" "$?" 0
cat /tmp/one /tmp/two /tmp/err1 /tmp/err2
is "nothing was lost" "$(cat /tmp/one /tmp/two | grep -c 'rounds$')" 8
sort /tmp/looks | uniq -c
slices
grep -E 'pswp(in|out)' /proc/vmstat
wrong=$(grep -v -e "^1 frozen 0 kept 1 above more swap max" -e "^2 frozen 0 kept 1 above more swap 0" \
    -e "frozen 1 kept 0 above more swap max" -e "^1 frozen 0 kept 0" /tmp/looks)
is "what runs is kept, what stands is not" "$wrong" ""
is "the first is kept from its first turn by a plan on" \
    "$(sed -n '/^1 frozen 1/,$p' /tmp/looks | grep -c '^1 frozen 0 kept 0')" 0
grep -v '^$' /run/apinit.log | tail -20
echo @@end
