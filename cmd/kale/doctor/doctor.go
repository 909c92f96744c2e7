// Package doctor tries what a job needs: what it says of a program or a service is what that did.
package doctor
