package main

import "testing"

// BenchmarkStart is what the schemas of all exports add to the app's start.
func BenchmarkStart(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if app := newApp(files{base: workspace}); len(app.Exports()) == 0 {
			b.Fatal("no exports")
		}
	}
}
