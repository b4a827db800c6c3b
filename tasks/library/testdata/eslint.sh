#!/bin/sh
# Writes a report with one finding, as eslint does, to the file of --output-file.
for word in "$@"; do
	case $word in
	--output-file=*) file=${word#--output-file=} ;;
	esac
done
printf '[\n{"filePath": "%s/a.js", "messages": [{"ruleId": "semi", "severity": 2, "message": "Missing semicolon.", "line": 3, "column": 1}]}\n]\n' \
	"$PWD" >"$file"
exit 1
