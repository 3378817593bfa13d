if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -ge 1 ]; then
        systemctl try-restart daemonlet.service || :
    fi
fi
if [ "$1" -eq 0 ] && [ -d /var/lib/daemonlet ]; then
    echo "/var/lib/daemonlet stays: the checkpoint, with Secrets; remove it when this node needs it no more"
fi
exit 0
