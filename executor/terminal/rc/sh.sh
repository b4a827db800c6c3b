# ramus reads this by ENV in the terminals that it opens with a shell that is not bash.
exec 9<&-
unset ENV
__ramus_n=0
__ramus_prompt() {
	printf '\033]633;D;%s\007\033]633;A\007%s:%s' "$1" "$RAMUS_NAME" "$PWD"
}
PS1='$(__ramus_prompt $?)$ '"$(printf '\033]633;B\007')"
