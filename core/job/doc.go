// Package job reads the HCL file in which an engineer describes one training job.
//
// Input: the source of a job file, and the values of its variables. Output: a Job, checked and with every default
// filled in, or diagnostics that say file, line, column and what to do, all of them at once. The schema in schema.go is
// the one description of the file: it drives decoding, defaults, "did you mean" and Reference.
//
// What a file alone cannot tell (does the topic exist?) is checked by whoever can ask; TopicDiagnostics, ErrorAt and
// Range point such findings at the right line of the file. The body of the backend block belongs to the backend's
// plugin and is handed on as bytes with their position.
//
// The names rho, tau and theta and the defaults marked with a section are those of Kale (SoCC '24).
package job
