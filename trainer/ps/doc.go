// Package ps is the parameter server: tablets of embedding rows and dense weights with their optimisers, the offsets that each has
// been trained with, and their snapshots; and the client with which workers pull and push.
package ps
