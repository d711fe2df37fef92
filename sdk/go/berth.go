// Package berth owns the app's side of the app protocol (sdk/protocol): typed
// exports, their schemas and the serving of calls.
//
//	func run(ctx context.Context) error {
//		app := berth.New("greeter")
//		berth.Export(app, "greet", "Greets somebody by name.",
//			func(ctx context.Context, in GreetIn) (GreetOut, error) {
//				return GreetOut{Text: "hello " + in.Name}, nil
//			})
//		return app.Serve(ctx)
//	}
package berth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthos/berth/sdk/protocol"
	"github.com/google/jsonschema-go/jsonschema"
)

// App is what one program exports. The zero value of every field has a meaning;
// fields and exports are set before Serve and not changed after.
type App struct {
	Name     string
	MaxCalls int           // calls that run at once, further ones wait; 0: 64
	Grace    time.Duration // how long running calls may take to finish at shutdown; 0: 5 s
	Stderr   io.Writer     // gets the stack of a panic; nil: os.Stderr

	exports []*export
	serves  func(export string) bool // nil: all
	errs    []error
}

// New returns an app without exports.
func New(name string) *App { return &App{Name: name} }

type export struct {
	protocol.Export
	input *schema
	call  func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)
}

// Export adds a function to the app. In must be a struct (or a map): its JSON
// Schema and that of Out are inferred from their fields, with `json` tags for
// names, `omitempty` for optional ones and `jsonschema` tags for descriptions.
// Input that does not fit the schema never reaches fn. A type without a schema or
// a name that is taken is reported by Serve.
//
// fn may be called by several goroutines at once. Its context ends when the call
// is cancelled; Progress, Log and Stream take it.
func Export[In, Out any](app *App, name, description string, fn func(context.Context, In) (Out, error)) {
	in, errIn := inferSchema[In]()
	out, errOut := inferSchema[Out]()
	if errIn == nil && !in.isObject() {
		errIn = errors.New("the input is not a struct or map")
	}
	if err := errors.Join(errIn, errOut, app.checkName(name)); err != nil {
		app.errs = append(app.errs, fmt.Errorf("cannot export %q: %w", name, err))
		return
	}
	e := &export{input: in}
	e.Export = protocol.Export{Name: name, Description: description, Input: in.raw, Output: out.raw}
	e.call = func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
		var v In
		if err := in.decode(input, &v); err != nil {
			return nil, err
		}
		result, err := fn(ctx, v)
		if err != nil {
			return nil, err
		}
		return encode(result)
	}
	app.exports = append(app.exports, e)
}

// Exports returns what the app announces, sorted by name. In a process that
// serves a part of them (spec.md, "Several processes") that is this part.
func (a *App) Exports() []protocol.Export {
	all := make([]protocol.Export, 0, len(a.exports))
	for _, e := range a.exports {
		if a.serves == nil || a.serves(e.Name) {
			all = append(all, e.Export)
		}
	}
	slices.SortFunc(all, func(a, b protocol.Export) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (a *App) checkName(name string) error {
	if err := protocol.CheckName(name); err != nil {
		return err
	}
	if a.find(name) != nil {
		return errors.New("the name is taken")
	}
	return nil
}

func (a *App) find(name string) *export {
	for _, e := range a.exports {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// served is find for exports that this process serves.
func (a *App) served(name string) *export {
	if a.serves != nil && !a.serves(name) {
		return nil
	}
	return a.find(name)
}

func (a *App) names() string {
	var names []string
	for _, e := range a.Exports() {
		names = append(names, e.Name)
	}
	return strings.Join(names, ", ")
}

// encode is json.Marshal without the escaping that is meant for HTML pages.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, Errorf(protocol.CodeInternal, "cannot encode the result: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// schema is an inferred schema. It is resolved, which is what validation needs,
// when the first input comes: an app must start fast.
type schema struct {
	tree    *jsonschema.Schema
	raw     json.RawMessage
	resolve func() (*jsonschema.Resolved, error)
}

func inferSchema[T any]() (*schema, error) {
	tree, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	resolve := sync.OnceValues(func() (*jsonschema.Resolved, error) { return tree.Resolve(nil) })
	return &schema{tree: tree, raw: raw, resolve: resolve}, nil
}

func (s *schema) isObject() bool { return s.tree.Type == "object" }
