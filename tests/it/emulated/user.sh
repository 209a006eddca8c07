# An ordinary user's checkpoint by root's CRIU: it is made and comes back, and what is not hers does not come with it.
. /prelude.sh
STATE=/run/state
export PSCHED_CRIU=/criu/criu
# (CRIU looks whether there are terminals.)
mkdir /dev/pts && mount -t devpts -o ptmxmode=666 devpts /dev/pts
[ -e /dev/ptmx ] || ln -s pts/ptmx /dev/ptmx
daemons
su alice -c 'psview -n' >/tmp/nodes 2>&1
has "criu is there for her" /tmp/nodes "criu 4"
mkdir /tmp/hers
chown alice:alice /tmp/hers
her() { su alice -c "cd /tmp/hers && $1"; }
her 'mkfifo fifo && echo text >a'
her 'exec aprun -q -n 2 sh -c "exec 8<>fifo 9<a; while :; do echo on; sleep 0.2; done" >first' &
aprun_pid=$!
eventually 60 "it runs" test -s /tmp/hers/first
her 'cpr -c tonight -k -p 1' >/tmp/out 2>&1
is "it is checkpointed" "$? $(sed "s/:.*//" /tmp/out)" "0 application 1 is checkpointed in tonight"
if ! [ -d /tmp/hers/tonight ]; then
    apkill -9 1
    exec echo @@end
fi
wait $aprun_pid
is "and ended" "$?" 137
is "the images are hers" "$(stat -c %U:%a /tmp/hers/tonight /tmp/hers/tonight/manifest.json | tr '\n' ' ')" \
    "alice:700 alice:600 "

comes_back() {
    rm -f /tmp/hers/out
    her 'exec cpr -r tonight --output out' 2>/tmp/err &
    cpr_pid=$!
    eventually 60 "it runs on ($1)" test -s /tmp/hers/out
    apid=$(apstat -a | sed -n 's/^ *\([0-9]*\) .*running.*/\1/p')
    pe=$(cat /sys/fs/cgroup/apinit/psched.????????/"$apid".1/0/cgroup.procs | head -n 1)
    is "as hers ($1)" "$(sed -n 's/^Uid:[^0-9]*//p' "/proc/$pe/status" | tr '\t' ' ')" "1000 1000 1000 1000"
    apkill -9 "$apid"
    wait $cpr_pid
    is "and can be ended ($1)" "$?" 137
}
comes_back first

# Something of root's, or a link, in the place of what is hers.
refused() {
    her 'cpr -r tonight --output out' >/tmp/out 2>&1
    is "$1: refused" "$?" 125
    has "$1: why" /tmp/out "$2"
}
for name in a fifo; do
    mv /tmp/hers/$name /tmp/hers/aside
    case $name in
    a) echo text >/tmp/hers/$name ;;
    fifo) mkfifo /tmp/hers/$name ;;
    esac
    chmod 600 /tmp/hers/$name
    refused "root's $name" "/tmp/hers/$name"
    rm /tmp/hers/$name
    ln -s aside /tmp/hers/$name
    refused "a link for $name" "symbolic link"
    rm /tmp/hers/$name
    mv /tmp/hers/aside /tmp/hers/$name
done
comes_back again
echo @@end
