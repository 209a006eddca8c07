# Another boot, after it: the state is there, the processes are not.
. /prelude.sh
mount -t ext4 /dev/vda /mnt || no "the disk" "not mounted"
STATE=/mnt/state
daemons
eventually 30 "both have ended" sh -c '[ "$(apstat --history --json | grep -c "\"apid\"")" = 2 ]'
apstat --history >/tmp/history
has "the first died with the host" /tmp/history "its host was restarted"
apstat --why 1 >/tmp/why
has "its status is that of a lost node" /tmp/why "125"
aprun -v -n 4 echo new >/tmp/out 2>/tmp/err
is "a new one runs" "$?" 0
is "on all four processors" "$(grep -c new /tmp/out)" 4
has "with a new number" /tmp/err "Application 3 took"
cat /tmp/history /tmp/why
echo @@end
