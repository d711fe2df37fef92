package berth_test

import (
	"context"
	"fmt"
	"os"

	berth "github.com/berthos/berth/sdk/go"
)

type greetIn struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

type greetOut struct {
	Text string `json:"text"`
}

func Example() {
	app := berth.New("greeter")
	berth.Export(app, "greet", "Greets somebody by name.", func(ctx context.Context, in greetIn) (greetOut, error) {
		berth.Progress(ctx, 1, 2, "thinking of "+in.Name)
		return greetOut{Text: "hello " + in.Name}, nil
	})
	if err := app.Serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
