package slacktest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxBlockText bounds the characters of all texts in a message's blocks. Slack does not document the bound. It refuses
// more with msg_blocks_too_long, and the smallest refused size seen so far is 13,172.
const maxBlockText = 13_000

// blockText counts the characters.
func blockText(v any) (n int) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += blockText(e)
		}
	case map[string]any:
		for name, e := range v {
			if text, ok := e.(string); ok && name == "text" {
				n += utf8.RuneCountInString(text)
			}
			n += blockText(e)
		}
	}
	return n
}

// CheckBlocks checks blocks against the limits of Block Kit (https://docs.slack.dev/reference/block-kit/blocks). Each
// returned mistake is in Slack's words.
func CheckBlocks(raw []byte) []string { return checkBlocks(raw, 50) }

// checkBlocks is CheckBlocks for at most that many blocks.
func checkBlocks(raw []byte, most int) []string {
	var blocks []any
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return []string{"no array of blocks: " + err.Error()}
	}
	k := &kit{blockIDs: map[string]bool{}}
	if len(blocks) > most {
		k.wrong("/blocks", "no more than %d items allowed", most)
	}
	for i, b := range blocks {
		k.block(fmt.Sprintf("/blocks/%d", i), b)
	}
	return k.mistakes
}

type kit struct {
	mistakes []string
	blockIDs map[string]bool
}

func (k *kit) wrong(at, format string, args ...any) {
	k.mistakes = append(k.mistakes, fmt.Sprintf(format, args...)+" [json-pointer:"+at+"]")
}

// fields refuses unknown fields of an object.
func (k *kit) fields(at string, o map[string]any, may ...string) {
	for name := range o {
		if !slices.Contains(may, name) {
			k.wrong(at, "invalid additional property: %s", name)
		}
	}
}

// length checks a string. The string may be absent if least is 0.
func (k *kit) length(at string, o map[string]any, name string, least, most int) {
	v, present := o[name]
	if !present {
		if least > 0 {
			k.wrong(at, "missing required field: %s", name)
		}
		return
	}
	text, ok := v.(string)
	if !ok {
		k.wrong(at+"/"+name, "must be a string")
		return
	}
	switch n := utf8.RuneCountInString(text); {
	case n < least:
		k.wrong(at+"/"+name, "must be more than %d characters", least-1)
	case n > most:
		k.wrong(at+"/"+name, "must be less than %d characters", most+1)
	}
}

func (k *kit) list(at string, o map[string]any, name string, least, most int) []any {
	list, ok := o[name].([]any)
	switch {
	case !ok:
		k.wrong(at, "missing required field: %s", name)
	case len(list) < least:
		k.wrong(at+"/"+name, "no less than %d items allowed", least)
	case len(list) > most:
		k.wrong(at+"/"+name, "no more than %d items allowed", most)
	}
	return list
}

// text checks a text object.
func (k *kit) text(at string, v any, most int, kinds ...string) {
	o, ok := v.(map[string]any)
	if !ok {
		k.wrong(at, "must be a text object")
		return
	}
	kind, _ := o["type"].(string)
	if !slices.Contains(kinds, kind) {
		k.wrong(at+"/type", "must be one of %s", strings.Join(kinds, ", "))
	}
	if kind == "plain_text" {
		k.fields(at, o, "type", "text", "emoji")
	} else {
		k.fields(at, o, "type", "text", "verbatim")
	}
	k.length(at, o, "text", 1, most)
}

const plain, mrkdwn = "plain_text", "mrkdwn"

func (k *kit) block(at string, v any) {
	b, ok := v.(map[string]any)
	if !ok {
		k.wrong(at, "must be an object")
		return
	}
	k.length(at, b, "block_id", 0, 255)
	if id, _ := b["block_id"].(string); id != "" {
		if k.blockIDs[id] {
			k.wrong(at+"/block_id", "block_id %q already exists", id)
		}
		k.blockIDs[id] = true
	}
	switch kind, _ := b["type"].(string); kind {
	case "section":
		k.fields(at, b, "type", "block_id", "text", "fields", "accessory", "expand")
		_, hasText := b["text"]
		_, hasFields := b["fields"]
		if !hasText && !hasFields {
			k.wrong(at, "missing required field: text")
		}
		if hasText {
			k.text(at+"/text", b["text"], 3000, plain, mrkdwn)
		}
		if hasFields {
			for i, f := range k.list(at, b, "fields", 1, 10) {
				k.text(fmt.Sprintf("%s/fields/%d", at, i), f, 2000, plain, mrkdwn)
			}
		}
		if e, has := b["accessory"]; has {
			k.element(at+"/accessory", e, map[string]bool{})
		}
	case "header":
		k.fields(at, b, "type", "block_id", "text", "level")
		k.text(at+"/text", b["text"], 150, plain)
	case "divider":
		k.fields(at, b, "type", "block_id")
	case "context":
		k.fields(at, b, "type", "block_id", "elements")
		for i, e := range k.list(at, b, "elements", 1, 10) {
			here := fmt.Sprintf("%s/elements/%d", at, i)
			if o, _ := e.(map[string]any); o["type"] == "image" {
				k.image(here, o)
			} else {
				k.text(here, e, 3000, plain, mrkdwn)
			}
		}
	case "actions":
		k.fields(at, b, "type", "block_id", "elements")
		ids := map[string]bool{}
		for i, e := range k.list(at, b, "elements", 1, 25) {
			k.element(fmt.Sprintf("%s/elements/%d", at, i), e, ids)
		}
	case "image":
		k.fields(at, b, "type", "block_id", "image_url", "slack_file", "alt_text", "title")
		k.image(at, b)
		if title, has := b["title"]; has {
			k.text(at+"/title", title, 2000, plain)
		}
	case "markdown":
		k.fields(at, b, "type", "block_id", "text")
		k.length(at, b, "text", 1, 12000)
	case "input":
		k.fields(at, b, "type", "block_id", "label", "element", "dispatch_action", "hint", "optional")
		k.text(at+"/label", b["label"], 2000, plain)
		if hint, has := b["hint"]; has {
			k.text(at+"/hint", hint, 2000, plain)
		}
		k.element(at+"/element", b["element"], map[string]bool{})
	case "rich_text":
		k.fields(at, b, "type", "block_id", "elements")
		k.list(at, b, "elements", 1, 1000)
	default:
		k.wrong(at+"/type", "unsupported type: %s", kind)
	}
}

func (k *kit) image(at string, o map[string]any) {
	if _, has := o["slack_file"]; !has {
		k.length(at, o, "image_url", 1, 3000)
	}
	k.length(at, o, "alt_text", 1, 2000)
}

// element checks an interactive element. ids has the action_ids of its block, which must differ.
func (k *kit) element(at string, v any, ids map[string]bool) {
	e, ok := v.(map[string]any)
	if !ok {
		k.wrong(at, "must be an object")
		return
	}
	k.length(at, e, "action_id", 0, 255)
	if id, _ := e["action_id"].(string); id != "" {
		if ids[id] {
			k.wrong(at+"/action_id", "`action_id` %q already exists for block", id)
		}
		ids[id] = true
	}
	switch kind, _ := e["type"].(string); kind {
	case "button":
		k.fields(at, e, "type", "text", "action_id", "url", "value", "style", "confirm", "accessibility_label")
		k.text(at+"/text", e["text"], 75, plain)
		k.length(at, e, "url", 0, 3000)
		k.length(at, e, "value", 0, 2000)
		k.length(at, e, "accessibility_label", 0, 75)
		if style, has := e["style"]; has && style != "primary" && style != "danger" {
			k.wrong(at+"/style", "must be one of primary, danger")
		}
	case "static_select", "radio_buttons", "checkboxes", "overflow":
		k.fields(at, e, "type", "placeholder", "action_id", "options", "option_groups", "initial_option",
			"initial_options", "confirm", "focus_on_load")
		most, value := 100, 150
		switch kind {
		case "overflow":
			most = 5
		case "radio_buttons", "checkboxes":
			most = 10
		}
		if kind == "static_select" {
			if p, has := e["placeholder"]; has {
				k.text(at+"/placeholder", p, 150, plain)
			}
		}
		if _, has := e["option_groups"]; has && kind == "static_select" {
			for i, g := range k.list(at, e, "option_groups", 1, 100) {
				o, _ := g.(map[string]any)
				here := fmt.Sprintf("%s/option_groups/%d", at, i)
				k.text(here+"/label", o["label"], 75, plain)
				k.options(here, o, most, value)
			}
		} else {
			k.options(at, e, most, value)
		}
		k.initial(at, e)
	case "plain_text_input":
		k.fields(at, e, "type", "action_id", "initial_value", "multiline", "min_length", "max_length",
			"dispatch_action_config", "focus_on_load", "placeholder")
		k.length(at, e, "initial_value", 0, 3000)
		if n, has := e["max_length"].(float64); has && (n < 1 || n > 3000) {
			k.wrong(at+"/max_length", "must be between 1 and 3000")
		}
	case "image":
		k.fields(at, e, "type", "image_url", "slack_file", "alt_text")
		k.image(at, e)
	default:
		k.wrong(at+"/type", "unsupported type: %s", kind)
	}
	if c, has := e["confirm"]; has {
		o, _ := c.(map[string]any)
		k.fields(at+"/confirm", o, "title", "text", "confirm", "deny", "style")
		k.text(at+"/confirm/title", o["title"], 100, plain)
		k.text(at+"/confirm/text", o["text"], 300, plain, mrkdwn)
		k.text(at+"/confirm/confirm", o["confirm"], 30, plain)
		k.text(at+"/confirm/deny", o["deny"], 30, plain)
	}
}

// initial checks that the initial option of a select is one of its options, in every part.
func (k *kit) initial(at string, e map[string]any) {
	initial, has := e["initial_option"]
	if !has {
		return
	}
	options, _ := e["options"].([]any)
	if !slices.ContainsFunc(options, func(o any) bool { return reflect.DeepEqual(o, initial) }) {
		k.wrong(at+"/initial_option", "must be one of the provided options")
	}
}

func (k *kit) options(at string, o map[string]any, most, value int) {
	for i, v := range k.list(at, o, "options", 1, most) {
		here := fmt.Sprintf("%s/options/%d", at, i)
		option, ok := v.(map[string]any)
		if !ok {
			k.wrong(here, "must be an object")
			continue
		}
		k.fields(here, option, "text", "value", "description", "url")
		k.text(here+"/text", option["text"], 75, plain, mrkdwn)
		k.length(here, option, "value", 1, value)
		if d, has := option["description"]; has {
			k.text(here+"/description", d, 75, plain, mrkdwn)
		}
	}
}
