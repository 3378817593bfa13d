# The last version goes: the agent stops, and what it started goes on running.
[ "$1" -eq 0 ] || exit 0
if [ -x /usr/bin/systemctl ]; then
    systemctl --no-reload disable daemonlet.service daemonlet-boot-guard.service || :
    if [ -d /run/systemd/system ]; then
        systemctl stop daemonlet.service daemonlet-boot-guard.service || :
    fi
fi
left=$(/usr/bin/daemonlet teardown --dry-run 2>/dev/null) || left=
case "$left" in
*"would end"*)
    echo "daemonlet is removed, and what it started goes on running:"
    echo "$left" | sed -n 's/^would end \(.*\)$/  \1/p'
    echo "Each ends when its manifest is removed. To tear the node down in order (folders are cleared, too):"
    echo "  systemctl stop daemonlet && daemonlet teardown     before the package is removed"
    ;;
esac
configured=$(/usr/bin/daemonlet run --print-config 2>/dev/null | sed -n 's/^state-dir = "\([^"]*\)".*/\1/p') || configured=''
noted=$(cat /var/lib/daemonlet/.state-dirs 2>/dev/null) || noted=''
printf '%s\n' /var/lib/daemonlet "$configured" "$noted" | sort -u | while read -r state; do
    if [ -n "$state" ] && [ -L "$state" ]; then
        echo "$state leads to $(readlink "$state"): remove what is in that folder, too"
    fi
    if [ -n "$state" ] && [ -d "$state" ]; then
        echo "$state stays: the checkpoint, with Secrets and the node's certificate; remove it when this node needs it no more"
        kubeconfig=$(cat "$state/identity/kubeconfig-path" 2>/dev/null) || kubeconfig=''
        if [ -n "$kubeconfig" ] && grep -qs 'identity/client\.pem' "$kubeconfig"; then
            echo "$kubeconfig stays: daemonlet enroll wrote it for that certificate; remove it, too"
        fi
    fi
done
exit 0
