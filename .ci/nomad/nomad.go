// Command nomad only pins what fetch-nomad.sh builds: the server's own main package cannot be imported.
package main

import _ "github.com/hashicorp/nomad/command"

func main() {}
