package berth

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berthos/berth/sdk/protocol"
	"github.com/google/jsonschema-go/jsonschema"
)

// decode validates the input of a call and stores it in v. Missing input is {}.
func (s *schema) decode(input json.RawMessage, v any) error {
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	var tree any
	if err := json.Unmarshal(input, &tree); err != nil {
		return Errorf(protocol.CodeInvalidInput, "input: %w", err)
	}
	resolved, err := s.resolve()
	if err != nil {
		return Errorf(protocol.CodeInternal, "cannot use the input's schema: %w", err)
	}
	if err := resolved.Validate(tree); err != nil {
		return Errorf(protocol.CodeInvalidInput, "input%s", explain(s.tree, tree, err))
	}
	err = json.Unmarshal(input, v)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) { // such as a number too large for its Go type
		return Errorf(protocol.CodeInvalidInput, "input /%s: %s does not fit", strings.ReplaceAll(wrong.Field, ".", "/"), wrong.Value)
	}
	if err != nil {
		return Errorf(protocol.CodeInvalidInput, "input: %w", err)
	}
	return nil
}

// explain words why an input does not fit. The validator decides; its own error
// names the schema's places and repeats the whole input, so the place in the
// input is looked for here.
func explain(s *jsonschema.Schema, input any, err error) string {
	if text := fault(s, input, ""); text != "" {
		return text
	}
	return ": " + protocol.Cut(err.Error(), 300)
}

// fault returns the first fault at or below the place at (a JSON Pointer), or "".
func fault(s *jsonschema.Schema, v any, at string) string {
	if text := typeFault(s, v); text != "" {
		return place(at) + ": " + text
	}
	switch v := v.(type) {
	case map[string]any:
		return objectFault(s, v, at)
	case []any:
		for i, item := range v {
			if s.Items == nil {
				break
			}
			if text := fault(s.Items, item, at+"/"+strconv.Itoa(i)); text != "" {
				return text
			}
		}
	case float64:
		if s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			return fmt.Sprintf("%s: %v is out of range", place(at), v)
		}
	}
	return ""
}

func objectFault(s *jsonschema.Schema, v map[string]any, at string) string {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return place(at+"/"+pointer(name)) + ": is missing"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		below := at + "/" + pointer(name)
		sub, known := s.Properties[name]
		if !known {
			sub = s.AdditionalProperties
		}
		switch {
		case sub == nil: // anything goes
		case sub.Not != nil: // how the library writes the schema "false"
			return place(below) + ": unknown key; known are " + strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")
		default:
			if text := fault(sub, v[name], below); text != "" {
				return text
			}
		}
	}
	return ""
}

// place sets a pointer apart from the word before it; the root has none.
func place(pointer string) string {
	if pointer == "" {
		return ""
	}
	return " " + pointer
}

func typeFault(s *jsonschema.Schema, v any) string {
	want := s.Types
	if s.Type != "" {
		want = []string{s.Type}
	}
	got := typeOf(v)
	if len(want) == 0 || slices.Contains(want, got) || got == "integer" && slices.Contains(want, "number") {
		return ""
	}
	last := want[len(want)-1] // "null" comes first where it is allowed
	return "is " + article(got) + ", not " + article(last)
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
	}
	return "number"
}

func article(kind string) string {
	switch kind {
	case "null":
		return kind
	case "integer", "array", "object":
		return "an " + kind
	}
	return "a " + kind
}

// pointer escapes a key for a JSON Pointer and shortens what nobody wants to read.
func pointer(key string) string {
	return protocol.Cut(strings.NewReplacer("~", "~0", "/", "~1").Replace(key), 100)
}
