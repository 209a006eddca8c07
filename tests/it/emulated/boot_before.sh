# Another boot, before it: one application runs and one waits when the machine goes dark.
. /prelude.sh
mount -t ext4 /dev/vda /mnt || no "the disk" "not mounted"
STATE=/mnt/state
daemons
aprun -n 4 sleep 1000 >/tmp/out 2>/tmp/err &
eventually 30 "it runs" sh -c 'apstat -a | grep -q "1 .*running"' && ok "an application runs"
aprun -n 1 sleep 1000 &
eventually 30 "another waits" sh -c 'apstat -a | grep -q "2 .*posted"' && ok "another waits"
echo @@end
sleep 0.5
# As if the power failed: nothing is written any more that was not.
echo o >/proc/sysrq-trigger
sleep 30
