pool "a" {
  gpus = 1.5
}
pool "b" {
  gpus = 1
}
