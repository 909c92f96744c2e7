# Durations and sizes with wrong units, or without any.
job "ctr" {
  slo {
    max_lag = 20
  }
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  workers {
    max          = 4
    memory       = "2Gi"
    emulate_step = "80 msec"
  }
  servers {
    memory = 2048
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  forecast {
    interval = "1"
    horizon  = "30min"
    season   = ["24h", "1week"]
    history  = "-72h"
  }
  autoscale {
    tau          = "ten minutes"
    cooldown_out = "-1s"
    tick         = ""
    watch        = "1ms"
  }
  checkpoint {
    dir   = "cp"
    every = "1e3s"
  }
  backend "local" {
  }
}
