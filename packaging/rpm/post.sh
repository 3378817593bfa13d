# $1: how many versions are installed then. An upgrade restarts the agent in postun.
if [ -x /usr/bin/systemd-tmpfiles ]; then
    systemd-tmpfiles --create daemonlet.conf || :
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
if [ "$1" -eq 1 ] && [ -x /usr/bin/systemctl ]; then
    systemctl preset daemonlet.service daemonlet-boot-guard.service || :
    # A package of an rpm system starts nothing by itself.
    echo "daemonlet is installed and not started; start it, now and at each boot: systemctl enable --now daemonlet"
fi
