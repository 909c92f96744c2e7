weight = 2

pool "main" {
  gpus     = 24
  patience = "9d"

  job "a" {
    type = "a100"
  }
  job "b" {
    patience = "1h"
  }
}
