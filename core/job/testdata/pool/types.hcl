pool "main" {
  gpus     = 24
  weight   = 2
  patience = "5s"

  type "a100" {
    gpus     = 8
    priority = 1
  }
  type "l4" {
    gpus = 16
  }
  type "l4" {
    gpus = 1
  }
  type "A 100" {
    gpus = 1
  }
  job "a" {
    priority = 10
  }
  job "b" {
    type   = "a10"
    weight = 0
  }
  job "c" {
    type   = "h200"
    weight = 1.5
    gpus   = 2
  }
  job "d" {
    type  = "l4"
    model = "x"
  }
}
