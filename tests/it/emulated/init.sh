#!/bin/busybox sh
# What the emulated machine does: mounts, modules, the scenario, off.
/bin/busybox --install -s /bin
export PATH=/bin
echo
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
for module in /modules/*.ko; do insmod "$module" || echo "$module is not taken"; done
ln -s /proc/self/fd /dev/fd
ip link set lo up
hostname emulated
cd /tmp
sh /scenario.sh </dev/null 2>&1
# Everything that was said has left the machine before it goes.
sync
sleep 0.2
poweroff -f
