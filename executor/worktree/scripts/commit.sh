# Commits the files of the work tree and pushes the commit, to the caller's own branch
# or to RAMUS_STAGE. The tree is a function of the files and of the .gitignore and
# .gitattributes among them. It is made with a git directory of ramus's own, so no
# configuration, index, info file or filter of the container's repository decides it.
# Large files are pointers, as the server's Git LFS has them.
# Commits that a command made itself, and a merge it began, become part of the history.
#
# RAMUS_MESSAGE is the commit message. RAMUS_KNOWN is the branch's tip when the command
# began. Arguments limit the commit to paths, which is refused in the middle of a merge or
# the like, as git does. With RAMUS_FLAT commits of the command's own
# are left out. With RAMUS_LEAVE standard input names paths, a NUL after each, that stay
# as they are in the parent. With RAMUS_LIST the script only prints the paths that differ
# from the parent, as git diff-index -z --raw has them.
#
# Prints records with a NUL after each: "tip HASH" or "staged HASH"; "artifacts" if a
# command left any; "left PATH" for a path that git cannot add; "index SHA256"; "loose" if
# the container's repository could not be brought to the new tip.
no_pipes
if [ $# -gt 0 ]; then
	# The commit would end a merge in progress, without its other side.
	for name in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD rebase-merge rebase-apply; do
		[ ! -e ".git/$name" ] || fail 95 "a merge, a rebase or the like is in progress in the work tree; end it first"
	done
fi
own_git "$RAMUS_KNOWN"
large_files keep

# Where the command's own repository is.
head= on= rebasing= merging=
if [ -n "$shared" ]; then
	{ [ -d .git/rebase-merge ] || [ -d .git/rebase-apply ]; } && rebasing=1
	if is_on_branch && is_at "$ref" "$RAMUS_KNOWN"; then
		head=$RAMUS_KNOWN on=$ref
	elif [ -f .git/HEAD ] && [ ! -h .git/HEAD ] && [ -d .git/refs ] && [ ! -h .git/refs ] && [ -z "$(find .git/refs ! -type f ! -type d)" ]; then
		cp .git/HEAD "$own/HEAD" && cp -R .git/refs/. "$own/refs"
		[ ! -f .git/packed-refs ] || [ -h .git/packed-refs ] || cp .git/packed-refs "$own/packed-refs"
		on=$(g symbolic-ref -q HEAD 2>/dev/null)
		head=$(g rev-parse -q --verify 'HEAD^{commit}' 2>/dev/null)
		[ -z "$head" ] || g cat-file -e "$head^{tree}" 2>/dev/null || head=
		rm -rf "$own/refs" "$own/packed-refs" && mkdir -p "$own/refs/heads" && printf 'ref: %s\n' "$ref" >"$own/HEAD" || fail 90 "cannot write a git directory"
	fi
	if [ -n "$head" ] && [ -z "$rebasing" ] && [ -f .git/MERGE_HEAD ] && [ ! -h .git/MERGE_HEAD ]; then
		for h in $(head -c 4096 .git/MERGE_HEAD); do
			case $h in *[!0-9a-f]*) continue ;; esac
			g cat-file -e "$h^{tree}" 2>/dev/null && merging=1 && echo "$h" >>"$own/merging"
		done
	fi
	if [ -n "${RAMUS_FLAT:-}" ]; then
		# Commits that are on the server stay.
		[ -n "$head" ] && [ -n "$RAMUS_TIP" ] && g merge-base --is-ancestor "$RAMUS_TIP" "$head" 2>/dev/null && head=$RAMUS_TIP on=$ref || head=
		merging= rebasing=
	fi
fi
[ -n "$head" ] || { head=$RAMUS_KNOWN on=$ref; }
read_index "$head"

# add_each adds in parts what differs, and path by path where a part cannot be added. It prints
# the paths that git cannot add.
add_each() {
	g ls-files -z --modified --deleted --others --exclude-standard -- "$@" >"$own/paths" || return 1
	xargs -0 -r -n 200 sh -c '
		one() {
			git -c core.fsmonitor=false -c core.excludesFile=/dev/null -c core.attributesFile=/dev/null -c core.autocrlf=false -c core.safecrlf=false \
				--literal-pathspecs add -A -- "$@" 2>/dev/null
		}
		one "$@" || for path; do one "$path" || printf "left %s\0" "$path"; done' sh <"$own/paths"
}

# add adds everything, or what differs below some paths.
add() {
	# Git leaves unreadable files out with a warning at most. They are made readable.
	g --literal-pathspecs add -A --ignore-errors -- "$@" 2>"$own/said" && [ ! -s "$own/said" ] && return 0
	find . -path ./.git -prune -o -type d ! -perm -u+rwx -exec chmod u+rwx {} + 2>/dev/null
	find . -path ./.git -prune -o -type d ! -perm -u+rwx -exec chmod u+rwx {} \; -o ! -type l ! -perm -u+r -exec chmod u+r {} + 2>/dev/null
	g --literal-pathspecs add -A --ignore-errors -- "$@" 2>"$own/said" && return 0
	add_each "$@"
}

if [ $# -eq 0 ]; then
	add . >"$own/left" || fail 92 "cannot look at the work tree: $(cat "$own/said")"
else
	: >"$own/left"
	g --literal-pathspecs ls-files -z --modified --deleted --others --exclude-standard -- "$@" >"$own/some" || fail 92 "cannot look at the work tree"
	if [ -s "$own/some" ]; then
		g --literal-pathspecs add -A --pathspec-from-file="$own/some" --pathspec-file-nul || fail 92 "cannot add the files"
	fi
fi
if [ -n "${RAMUS_LEAVE:-}" ]; then
	cat >"$own/leave" && g --literal-pathspecs reset -q "$head" --pathspec-from-file="$own/leave" --pathspec-file-nul || fail 92 "cannot leave files out"
fi
if [ -n "${RAMUS_LIST:-}" ]; then
	g diff-index --cached -r -z --raw --no-renames --no-abbrev "$head"
	exit
fi
tree=$(g write-tree) || fail 92 "cannot write the tree"

printf '%s' "$RAMUS_MESSAGE" >"$own/message" || fail 90 "cannot keep the message"
# A server that lost the container reads here that files are missing.
[ -z "${RAMUS_LEAVE:-}" ] && [ ! -s "$own/left" ] || g interpret-trailers --in-place --trailer 'Ramus-Uncommitted: true' "$own/message" || fail 90 "cannot keep the message"
[ "$head" = "$RAMUS_KNOWN" ] && was=$shared || was=
[ -n "$was" ] || was=$(g rev-parse "$head^{tree}")
if [ "$on" = "$ref" ] && [ -z "$rebasing" ]; then
	new=$head
	if [ -n "$merging" ]; then
		# Git itself knows the headers of such a commit.
		g update-ref "$ref" "$head" && mv "$own/merging" "$own/MERGE_HEAD" || fail 90 "cannot write a git directory"
		set -- commit -q --no-verify --allow-empty --cleanup=verbatim -F "$own/message"
		s "$@" || { [ -n "$signing" ] && g "$@"; } || fail 92 "cannot commit"
		new=$(g rev-parse HEAD)
	elif [ "$tree" != "$was" ]; then
		new=$(commit_tree "$tree" -p "$head" -F "$own/message") || fail 92 "cannot commit"
	fi
else
	# The command's repository is elsewhere (a rebase in progress, another branch, a
	# detached HEAD). The branch records the files all the same.
	set -- -p "$RAMUS_KNOWN"
	if ! g merge-base --is-ancestor "$head" "$RAMUS_KNOWN"; then
		set -- "$@" -p "$head"
	fi
	if [ $# -eq 2 ] && [ "$tree" = "$(g rev-parse "$RAMUS_KNOWN^{tree}")" ]; then
		new=$RAMUS_KNOWN
	else
		new=$(commit_tree "$tree" "$@" -F "$own/message") || fail 92 "cannot commit"
	fi
fi
# A commit on top of RAMUS_KNOWN descends from it.
if [ "$head" != "$RAMUS_KNOWN" ] && ! g merge-base --is-ancestor "$RAMUS_KNOWN" "$new"; then
	# The command rewrote its branch. Its history is kept, and so is the old one.
	new=$(commit_tree "$tree" -p "$RAMUS_KNOWN" -p "$new" -F "$own/message") || fail 92 "cannot commit"
fi

# Where a push was refused before, deltas may be why.
window=
[ -z "${RAMUS_APART:-}" ] || window='-c pack.window=0'
if [ -n "${RAMUS_STAGE:-}" ]; then
	g $window push -q "$RAMUS_REMOTE" "$new:$RAMUS_STAGE" >&2 || fail 94 "cannot push $RAMUS_BRANCH"
	printf 'staged %s\0' "$new"
else
	if [ "$new" != "$RAMUS_TIP" ]; then
		g $window push -q "$RAMUS_REMOTE" "$new:$ref" >&2 || fail 94 "cannot push $RAMUS_BRANCH"
	fi
	printf 'tip %s\0' "$new"
fi
[ ! -s "$own/left" ] || cat "$own/left"

# The container's repository follows.
if [ -z "$shared" ]; then
	clone_git && signs_for_commands || printf 'loose\0'
fi
[ -n "$rebasing" ] || point_git "$new" || printf 'loose\0'
if [ -n "${RAMUS_FLAT:-}" ]; then
	rm -f .git/ORIG_HEAD .git/FETCH_HEAD .git/COMMIT_EDITMSG
	# Only room is lost if git cannot forget the commits that were left out.
	theirs reflog expire --expire=now --all 2>/dev/null && theirs prune --expire=now 2>/dev/null
fi
[ -n "$rebasing" ] || save_index
set -- "${RAMUS_ARTIFACTS:-/artifacts}"
for f in "$1"/* "$1"/.[!.]* "$1"/..?*; do
	if [ -e "$f" ] || [ -h "$f" ]; then
		printf 'artifacts\0'
		break
	fi
done
