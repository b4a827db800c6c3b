# What every container needs before its caller is known: a folder for what package
# managers fetch, where it may be mounted, and where pnpm keeps its store. Pnpm's
# environment variable would be npm's too, which complains about it. That of yarn 1 would be
# that of later versions, which may have their cache in the repository.
mkdir -p /cache/deps || { echo "ramus: cannot make /cache/deps" >&2; exit 90; }
case ${HOME:-} in
/cache/*)
	[ -e "$HOME/.yarnrc" ] || { mkdir -p "$HOME" && echo 'cache-folder "/cache/deps/yarn"' >"$HOME/.yarnrc"; } || { echo "ramus: cannot write the settings of yarn" >&2; exit 90; }
	pnpm=$HOME/.config/pnpm
	[ -e "$pnpm/rc" ] || { mkdir -p "$pnpm" && echo store-dir=/cache/deps/pnpm >"$pnpm/rc"; } || { echo "ramus: cannot write the settings of pnpm" >&2; exit 90; }
	;;
esac
