# What every container needs before its caller is known: where pnpm keeps its store.
# Its environment variable would be npm's too, which complains about it.
case ${HOME:-} in
/cache/*)
	pnpm=$HOME/.config/pnpm
	[ -e "$pnpm/rc" ] || { mkdir -p "$pnpm" && echo store-dir=/cache/pnpm >"$pnpm/rc"; } || { echo "ramus: cannot write the settings of pnpm" >&2; exit 90; }
	;;
esac
