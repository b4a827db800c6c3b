# Commits what a command changed and pushes it to the caller's own branch.
# The message comes on standard input, paths to be limited to as arguments.
# RAMUS_KNOWN is the branch's tip when the command began, RAMUS_TIP its tip on
# the server now: they differ when somebody else pushed meanwhile.
# Prints the new tip, and "artifacts" when a command left any.
msg=$(mktemp) || fail 90 "cannot make a temporary file"
trap 'rm -f "$msg" "$msg.index" "$msg.add" "$msg.paths"' EXIT
cat >"$msg" || fail 90 "cannot keep the message"

# A repository that the command broke or deleted is made anew around the files.
if [ ! -d .git ] || [ -h .git ] || ! g cat-file -e "$RAMUS_KNOWN^{tree}" 2>/dev/null; then
	rm -rf .git
	t=$(mktemp -d) || fail 90 "cannot make a temporary folder"
	g clone -q --no-checkout -b "$RAMUS_BRANCH" "$RAMUS_REMOTE" "$t/r" || fail 91 "cannot clone $RAMUS_BRANCH"
	mv "$t/r/.git" .git && rmdir "$t/r" "$t" || fail 90 "cannot place the repository"
	g symbolic-ref HEAD "$ref" && g update-ref "$ref" "$RAMUS_KNOWN" && g reset -q || fail 92 "cannot mend the repository"
	signs_for_commands
fi
rm -f .git/index.lock .git/HEAD.lock ".git/$ref.lock"
[ "$(g config --bool core.bare 2>/dev/null)" = true ] && g config core.bare false

add() {
	# What cannot be read is the only thing that git leaves out, of folders with
	# no more than a warning: whatever it says, all is made readable and added again.
	g add -A --ignore-errors -- "$@" 2>"$msg.add" && [ ! -s "$msg.add" ] && return 0
	find . -path ./.git -prune -o -type d ! -perm -u+rwx -exec chmod u+rwx {} + 2>/dev/null
	find . -path ./.git -prune -o -type d ! -perm -u+rwx -exec chmod u+rwx {} \; -o ! -type l ! -perm -u+r -exec chmod u+r {} + 2>/dev/null
	g add -A --ignore-errors -- "$@" 2>"$msg.add" && return 0
	# The index itself may be what is broken.
	rm -f .git/index
	g reset -q && g add -A --ignore-errors -- "$@" 2>"$msg.add" && return 0
	cat "$msg.add" >&2
	return 1
}

# stage adds everything, or what changed below the paths that were given; git
# itself would refuse them all if one of them meant nothing to it.
stage() {
	[ $# -gt 0 ] || { add .; return; }
	{
		g --literal-pathspecs ls-files -z --modified --deleted --others --exclude-standard -- "$@"
		g --literal-pathspecs diff --cached --name-only --no-renames -z -- "$@"
	} >"$msg.paths"
	only=--pathspec-from-file=$msg.paths
	[ -s "$msg.paths" ] || return 0
	g --literal-pathspecs add -A "$only" --pathspec-file-nul
}
only=

on=$(g symbolic-ref -q HEAD || true)
if [ "$on" = "$ref" ] && g rev-parse -q --verify HEAD >/dev/null && [ ! -d .git/rebase-merge ] && [ ! -d .git/rebase-apply ]; then
	stage "$@" || echo "ramus: some files could not be committed" >&2
	if [ -n "$only" ]; then
		if [ -s "$msg.paths" ] && ! g diff --cached --quiet; then
			c --literal-pathspecs commit -q --no-verify --cleanup=verbatim -F "$msg" "$only" --pathspec-file-nul || fail 92 "cannot commit"
		fi
	elif ! g diff --cached --quiet || [ -f .git/MERGE_HEAD ]; then
		c commit -q --no-verify --allow-empty --cleanup=verbatim -F "$msg" || fail 92 "cannot commit"
	fi
	new=$(g rev-parse HEAD) || fail 92 "cannot commit"
else
	# The command stands elsewhere (a rebase half way, another branch, a detached
	# HEAD): what the files are is recorded on the branch all the same.
	head=$(g rev-parse -q --verify HEAD || true)
	[ ! -f .git/index ] || cp .git/index "$msg.index"
	GIT_INDEX_FILE=$msg.index
	export GIT_INDEX_FILE
	add . || echo "ramus: some files could not be committed" >&2
	tree=$(g write-tree) || { g read-tree --empty && add . && tree=$(g write-tree); } || fail 92 "cannot write the tree"
	unset GIT_INDEX_FILE
	set -- -p "$RAMUS_KNOWN"
	if [ -n "$head" ] && ! g merge-base --is-ancestor "$head" "$RAMUS_KNOWN"; then
		set -- "$@" -p "$head"
	fi
	if [ $# -eq 2 ] && [ "$tree" = "$(g rev-parse "$RAMUS_KNOWN^{tree}")" ]; then
		new=$RAMUS_KNOWN
	else
		new=$(commit_tree "$tree" "$@" -F "$msg") || fail 92 "cannot commit"
	fi
	if [ ! -d .git/rebase-merge ] && [ ! -d .git/rebase-apply ]; then
		g symbolic-ref HEAD "$ref" && g update-ref "$ref" "$new" && g reset -q || fail 92 "cannot return to $RAMUS_BRANCH"
	fi
fi

if [ "$RAMUS_TIP" != "$RAMUS_KNOWN" ]; then
	g fetch -q "$RAMUS_REMOTE" "$ref" || fail 91 "cannot fetch $RAMUS_BRANCH"
	if ! g merge-base --is-ancestor "$RAMUS_TIP" "$new"; then
		g checkout -q -f -B "$RAMUS_BRANCH" "$new" || fail 92 "cannot return to $RAMUS_BRANCH"
		merge_tip() { "$1" merge -q --no-verify -X ours -m "Merge what was pushed to $RAMUS_BRANCH meanwhile" "$RAMUS_TIP" >&2; }
		merge_tip s || { g merge --abort; [ -n "$signing" ] && merge_tip g; } ||
			{ g merge --abort; fail 93 "what was pushed to $RAMUS_BRANCH meanwhile cannot be merged"; }
		new=$(g rev-parse HEAD)
	fi
elif ! g merge-base --is-ancestor "$RAMUS_TIP" "$new"; then
	# The caller rewrote its branch. Its history is kept, and so is the old one.
	new=$(commit_tree "$new^{tree}" -p "$RAMUS_TIP" -p "$new" -F "$msg") || fail 92 "cannot commit"
	g update-ref "$ref" "$new"
fi

if [ "$new" != "$RAMUS_TIP" ]; then
	g push -q "$RAMUS_REMOTE" "$new:$ref" >&2 || fail 94 "cannot push $RAMUS_BRANCH"
fi
g update-ref "refs/remotes/origin/$RAMUS_BRANCH" "$new" 2>/dev/null
echo "$new"
[ -z "$(ls -A "${RAMUS_ARTIFACTS:-/artifacts}" 2>/dev/null)" ] || echo artifacts
