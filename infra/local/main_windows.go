// Command local does not run on Windows.
package main

import (
	"fmt"
	"os"
)

func main() {
	_, _ = fmt.Fprintln(os.Stderr, "error: the local cloud runs on Linux and macOS: it needs their signals and file locks. "+
		"On Windows run it in WSL (https://learn.microsoft.com/windows/wsl/install), from a clone inside of it.")
	os.Exit(1)
}
