# The reference job of `kale replay`: what policies are compared with, and the job that a replay without a job file uses. One worker trains 16,000 samples/s, as
# in the published day (Kale §4.4), 2 to 28 workers train, and no sample may wait for longer than 20 minutes.

variable "curve" {
  description = "\"linear\", or \"sync-a10\": the shape of the published synchronous fit on A10 (Kale §3.3), stretched so that its peak lies at 28 workers."
  default     = "linear"
}

job "replay" {
  slo {
    max_lag = "20m"
  }

  stream "kafka" {
    brokers = ["localhost:9092"] # a replay asks no broker
    topic   = "clicks"
  }

  features {
    format = "json"
    label  = "click"
    sparse = ["user", "item", "category", "slot"]
    dense  = ["price", "age"]
  }

  model {
    kind = "deepfm"

    optimiser "adagrad" {
      learning_rate = 0.05
    }
  }

  workers {
    min    = 2
    max    = 28
    gpus   = 1
    cpu    = 4
    memory = "8GiB"
  }

  servers {
    count  = 2
    cpu    = 4
    memory = "16GiB"
  }

  throughput {
    form   = var.curve == "sync-a10" ? "sync" : "async"
    theta  = var.curve == "sync-a10" ? [0.00035, 7.20328, 7.702016, 0.00995] : [0.0000625, 0, 0]
    batch  = var.curve == "sync-a10" ? 16384 : null
    source = var.curve == "sync-a10" ? "Kale's synchronous fit on A10, f(10w/28)" : "linear: 16,000 samples/s per worker"
  }

  forecast {
    interval = "1m"
    horizon  = "2h" # a plan over the next ramp, and not only into it
    season   = ["24h", "7d"]
    history  = "14d"
  }

  autoscale {
    policy       = "kale"
    mode         = "restart"
    headroom     = 0.1
    tau          = "30m" # as in the plan that the paper shows (Kale, Fig. 5); the default of 10m is less than two outages
    cooldown_out = "1m"
    cooldown_in  = "5m"
    tick         = "60s"
  }

  checkpoint {
    dir   = "checkpoints/replay"
    every = "10m"
  }

  backend "local" {
  }
}
