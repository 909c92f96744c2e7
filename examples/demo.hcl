# The job of `kale demo`: the reference job with a day of two minutes. Every time is scaled alike; nothing in the
# scheduler knows that this is a demo.

variable "brokers" {
  description = "host:port of a broker; the demo starts one of its own."
  type        = string
}

variable "dir" {
  description = "Folder for checkpoints."
  type        = string
}

variable "forecast" {
  description = "\"seasonal\", or the path of an .onnx file."
  default     = "seasonal"
}

job "demo" {
  slo {
    max_lag = "2s" # 20 minutes of a day
  }

  stream "kafka" {
    brokers     = [var.brokers]
    topic       = "clicks"
    start       = "latest"
    dead_letter = "clicks-dead"
  }

  features {
    format = "json"
    label  = "click"
    sparse = ["user", "item", "category", "slot"]
    dense  = ["price", "age"]
  }

  model {
    kind          = "deepfm"
    embedding_dim = 8
    hidden        = [32, 16]
    batch         = 96
    linger        = "50ms"

    optimiser "adagrad" {
      learning_rate = 0.05
    }
  }

  # The accelerator is emulated: a step of up to 96 records takes at least 160 ms, however fast this machine is, so that
  # a worker trains at most 600 records/s and one small machine can show six of them. No real GPU is asked for.
  workers {
    min          = 1
    max          = 6
    gpus         = 0
    cpu          = 0.25
    memory       = "256MiB"
    emulate_step = "160ms"
    chunk        = 32
    queue        = 128
  }

  servers {
    count  = 2
    cpu    = 0.25
    memory = "256MiB"
  }

  throughput {
    form   = "async"
    theta  = [0.00166667, 0, 0]
    source = "the emulated accelerator: 160 ms for 96 records"
  }

  forecast {
    interval = "1s"
    horizon  = "30s"
    season   = "120s" # the day
    history  = "360s"
    model    = var.forecast
  }

  autoscale {
    policy       = "kale"
    tau          = "3s" # 36 minutes of a day
    headroom     = 0.2
    cooldown_out = "1s"
    cooldown_in  = "6s" # 72 minutes
    tick         = "1s"
    watch        = "250ms"
  }

  checkpoint {
    dir   = var.dir
    every = "10s"
    keep  = 2
  }

  backend "local" {
  }
}
