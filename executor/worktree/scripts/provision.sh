# Fills the empty work tree from the caller's branch, or from an earlier commit of it.
clone_git || exit
g reset -q --hard "${RAMUS_AT:-$ref}" || fail 91 "cannot check out $RAMUS_BRANCH"
g config user.name "$GIT_AUTHOR_NAME" && g config user.email "$GIT_AUTHOR_EMAIL" || fail 90 "cannot set the identity"
signs_for_commands
g rev-parse "$ref"
