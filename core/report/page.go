package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
)

// Page is another page in the style of this report: its own body, style and script after uPlot's and the report's, and one block of data.
type Page struct {
	// Title is that of the browser's window.
	Title string
	// Body is what stands between header and scripts. It must have been escaped, as html/template does.
	Body template.HTML
	CSS  string
	// Script runs after uPlot; it finds Data as JSON in the element "data".
	Script string
	Data   any
}

var shellTemplate = template.Must(template.New("shell").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" {{.Policy}}>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}}</title>
<style>{{.CSS}}</style>
</head>
<body>
{{.Body}}
<script type="application/json" id="data">{{.JSON}}</script>
{{- range .Scripts}}
<script>{{.}}</script>
{{- end}}
</body>
</html>
`))

// WritePage writes p as one HTML file that loads nothing.
func WritePage(w io.Writer, p Page) error {
	encoded, err := json.Marshal(p.Data) // Escapes <, > and &, so that no text ends the script element.
	if err != nil {
		return fmt.Errorf("page %q: %w", p.Title, err)
	}
	css := uplotCSS + "\n" + pageCSS + "\n" + p.CSS
	scripts := []string{uplotJS + "\n/*\n" + uplotLicence + "*/\n", p.Script}
	filled := struct {
		Title   string
		Policy  template.HTMLAttr
		CSS     template.CSS
		Body    template.HTML
		JSON    template.JS
		Scripts []template.JS
	}{p.Title, contentPolicy(css, scripts), template.CSS(css), p.Body, template.JS(encoded), nil}
	for _, s := range scripts {
		filled.Scripts = append(filled.Scripts, template.JS(s))
	}
	var out bytes.Buffer
	if err := shellTemplate.Execute(&out, filled); err != nil {
		return fmt.Errorf("page %q: %w", p.Title, err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the page %q: %w", p.Title, err)
	}
	return nil
}
