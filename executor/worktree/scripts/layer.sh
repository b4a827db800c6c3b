# Makes the empty work tree a base layer: the commit RAMUS_TIP of the base, checked out,
# with a repository of its own that has the base's objects and no branch. Its index
# knows every file by the times it has here, so that no container reads them all again.
t=$(mktemp -d) || fail 90 "cannot make a temporary folder"
g clone -q --no-checkout --no-tags --single-branch -b "$RAMUS_BRANCH" "$RAMUS_REMOTE" "$t/r" || fail 91 "cannot clone $RAMUS_BRANCH"
mv "$t/r/.git" .git && rmdir "$t/r" "$t" || fail 90 "cannot place the repository"
g config index.version 2 && g config core.untrackedCache true || fail 90 "cannot set up the repository"
head=$(g rev-parse "$ref") || fail 92 "cannot read the commit"
g checkout -q --detach "$RAMUS_TIP" || fail 91 "cannot check out $RAMUS_TIP"
g update-ref -d "$ref" && g update-ref "refs/remotes/origin/$RAMUS_BRANCH" "$RAMUS_TIP" && g pack-refs --all || fail 92 "cannot set the refs"
rm -rf .git/logs .git/ORIG_HEAD .git/FETCH_HEAD
# A file that is as old as the index, or younger, is read again by every `git status`.
made=$(g log -1 --format=%ct) || fail 92 "cannot read the commit"
now=$(date +%s)
[ "$made" -lt "$((now - 10))" ] 2>/dev/null || made=$((now - 10))
find . -path ./.git -prune -o -exec touch -h -d "@$made" {} + || fail 90 "cannot set the times of the files"
g update-index -q --refresh || fail 92 "cannot write the index"
# Twice: what was looked at for the first time is trusted from the second on.
g status --porcelain >/dev/null && g status --porcelain >/dev/null || fail 92 "cannot look at the work tree"
can_sign
echo "$head${signing:+ signs}"
