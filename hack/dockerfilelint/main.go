// Command dockerfilelint says what `docker build --check` says of Dockerfiles, without a daemon: BuildKit's own frontend
// reads them, by its own rules. What COPY finds in the build context, and images, are not looked at.
//
//	dockerfilelint FILE...
//
// Exit code 1: there was something to say; 2: a file could not be read.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
)

func main() {
	code := 0
	for _, name := range os.Args[1:] {
		data, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if lint(name, data) > 0 {
			code = 1
		}
	}
	os.Exit(code)
}

// anyImage takes every image for one that sets nothing, so that no registry is asked.
type anyImage struct{}

func (anyImage) ResolveImageConfig(_ context.Context, reference string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	return reference, digest.FromString(reference), []byte("{}"), nil
}

// lint prints what is wrong in every stage, and returns how much that is.
func lint(name string, data []byte) int {
	source := llb.NewSourceMap(nil, name, "Dockerfile", data)
	source.Definition = &llb.Definition{} // it is asked for, though there is none of a plain file
	options := dockerfile2llb.ConvertOpt{SourceMap: source, MetaResolver: anyImage{}}
	found, err := dockerfile2llb.DockerfileLint(context.Background(), data, options)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	}
	for _, warning := range found.Warnings {
		line := int32(0)
		if ranges := warning.Location.GetRanges(); len(ranges) > 0 {
			line = ranges[0].Start.Line
		}
		fmt.Printf("%s:%d %s: %s (%s)\n", name, line, warning.RuleName, warning.Detail, warning.URL)
	}
	if found.Error != nil {
		fmt.Printf("%s: %s\n", name, found.Error.Message)
		return len(found.Warnings) + 1
	}
	return len(found.Warnings)
}
