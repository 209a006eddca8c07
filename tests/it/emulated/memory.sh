# Two gangs on both nodes, which together have more memory than the host, take turns through swap.
. /prelude.sh
STATE=/run/state
CONFIG='variables: { application.time_slice: 1s, application.switch_share: 25%, application.memory_overcommit: 4, kill_grace: 1s }'
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
# Each has 700 MB; the host has about 1,200 to give. The second has a limit.
aprun -q -n 4 -N 2 pages 175 5 >/tmp/one 2>/tmp/err1 &
one=$!
eventually 60 "the first runs" sh -c 'apstat -a | grep -q running'
aprun -q -n 4 -N 2 -m 200M pages 175 5 >/tmp/two 2>/tmp/err2 &
two=$!

# What each has at an instant, node 0 for both: frozen, memory.min, memory.swap.max. (A change that is just
# being made shows something between the two; nothing is forked, so that few are seen.)
look() {
    for apid in 1 2; do
        node=$(echo /sys/fs/cgroup/apinit/psched.*/$apid.1/0)
        [ -d "$node" ] || return 0
        read -r frozen <$node/cgroup.freeze && read -r min <$node/memory.min &&
            read -r above <$node/../memory.min && read -r swap <$node/memory.swap.max || return 0
        [ "$min" = 0 ] && kept=0 || kept=1
        [ "$above" -ge "$min" ] && above=more || above=less
        echo "$apid frozen $frozen kept $kept above $above swap $swap"
    done
}
while kill -0 $one 2>/dev/null && kill -0 $two 2>/dev/null; do
    look >>/tmp/looks 2>/dev/null
    psview >/tmp/view
    cat /tmp/view >>/tmp/views
    sleep 0.25
done
wait $one
is "the first ends well" "$?" 0
wait $two
is "the second ends well" "$?" 0
cat /tmp/one /tmp/two /tmp/err1 /tmp/err2
is "nothing was lost" "$(cat /tmp/one /tmp/two | grep -c 'rounds$')" 8
sort /tmp/looks | uniq -c
seen() { grep -c "^$1" /tmp/looks; }
between=$(($(seen ". frozen 1 kept 1") + $(seen ". frozen 0 kept 0")))
[ $((between * 4)) -le "$(seen .)" ] && ok "what runs is kept, what stands is not" || no "kept" $between
for apid in 1 2; do
    [ "$(seen "$apid frozen 0 kept 1 above more swap $([ $apid = 1 ] && echo max || echo 0)")" -ge 1 ] &&
        ok "$apid was kept while it ran" || no "$apid" "was not kept while it ran"
    [ "$(seen "$apid frozen 1 kept 0 above more swap max")" -ge 1 ] &&
        ok "$apid could be taken from while it stood" || no "$apid" "was kept while it stood"
done
grep -E 'pswp(in|out)' /proc/vmstat
# (Of so many pages. Where the machine is very slow the first ends before the second has all its memory.)
if [ "$(sed -n 's/^pswpin //p' /proc/vmstat)" -gt 20000 ]; then
    has "what came in is told" /tmp/views "Memory brought in: "
    # The slices in tenths of a second, as they were told: some are long enough for what had to come.
    slices=$(sed -n 's/^[> ] *[0-9]*  *\([0-9]*\)\.\([0-9]\)s .*/\1\2/p' /tmp/views | sort -n | uniq -c)
    echo "$slices"
    [ "$(echo "$slices" | tail -n 1 | sed 's/.* //')" -gt 10 ] && ok "slices are longer for it" || no "slices" "$slices"
fi
cat /tmp/view
grep -v '^$' /run/apinit.log | tail -20
echo @@end
