# $1: how many versions are installed then. An upgrade restarts the agent in postun.
if [ -x /usr/bin/systemd-tmpfiles ]; then
    systemd-tmpfiles --create daemonlet.conf || :
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
if [ "$1" -eq 1 ] && [ -x /usr/bin/systemctl ]; then
    systemctl preset daemonlet.service daemonlet-boot-guard.service || :
    # A package of an rpm system starts nothing by itself; presets say what starts at the next boot.
    echo "daemonlet is installed, and nothing was started. What the system's presets made of the next boot:"
    for unit in daemonlet.service daemonlet-boot-guard.service; do
        echo "  $unit: $(systemctl is-enabled "$unit" 2>/dev/null || :)"
    done
    echo "start the agent now and both at each boot: systemctl enable --now daemonlet && systemctl enable daemonlet-boot-guard"
fi
