# A click-through-rate model that trains without end on a stream of clicks.
#
# This is the reference job: every block is here, and what stands in it is either what a production job would say or
# the default. `kale validate examples/ctr.hcl` checks it, `kale help jobfile` lists every attribute.

variable "brokers" {
  description = "Kafka brokers to begin with: -var 'brokers=[\"kafka-1:9092\"]'."
  type        = list(string)
  default     = ["localhost:9092"]
}

variable "checkpoints" {
  description = "Folder for checkpoints. Every node that may run a server must reach it."
  default     = "checkpoints/ctr"
}

job "ctr" {
  # The promise: no record waits longer than this for training. A click model that lags by 20 minutes has lost half a
  # point of AUC, one that lags by two hours four points (Kale §2.2).
  slo {
    max_lag = "20m"
  }

  stream "kafka" {
    brokers = var.brokers
    topic   = "clicks"

    # Only for a job without a checkpoint. Later runs go on where the checkpoint stands.
    # Also "earliest", "-6h", "2026-01-31T06:00:00Z".
    start = "latest"

    # If retention deletes records before they were trained, the partition stops and says so.
    # "skip" counts the range as lost, reports it, and trains on.
    on_lost = "stop"

    # Records that cannot be decoded go here, keyed by topic, partition and offset. Create the topic beforehand.
    dead_letter = "clicks-dead"

    # Without dead_letter: "stop" halts the partition at such a record until somebody decides; "skip" counts it, logs its offset, and trains on.
    on_undecodable = "stop"

    # tls {
    #   ca_file = "kafka-ca.pem" # beside this file
    # }
    # sasl {
    #   mechanism = "scram-sha-512"
    #   username  = "kale"
    #   password  = env("KAFKA_PASSWORD") # never printed
    # }
  }

  # The fields of a record: {"click": 1, "user": "u123", "item": "i45", …, "price": 0.37, "age": 0.12}.
  features {
    format = "json" # or "tfexample"
    label  = "click"
    sparse = ["user", "item", "category", "slot"]
    dense  = ["price", "age"]
  }

  # What a checkpoint depends on: kind, embedding_dim, hidden, the optimiser's kind, tablets, and the features above.
  # With any of them changed, an old checkpoint is refused and the message names the difference.
  model {
    kind          = "deepfm"
    embedding_dim = 16
    hidden        = [64, 32]
    batch         = 1024 # records per worker and step; a multiple of workers.chunk
    mode          = "async"
    linger        = "50ms" # a batch that is not full by then is trained as it is
    l2            = 0
    seed          = 1
    tablets       = 64 # the pieces that parameters are cut into; at least as many as there will ever be servers

    optimiser "adagrad" {
      learning_rate = 0.05
    }
  }

  # The elastic part. Kale keeps the number of workers between min and max.
  workers {
    min    = 2
    max    = 16
    gpus   = 1
    cpu    = 4
    memory = "8GiB"

    chunk   = 64         # records that are forwarded and accounted for together
    queue   = 4096       # records that a worker holds ready
    forward = "advanced" # full workers hand records to others, so that hot partitions starve nobody
  }

  servers {
    count  = 2
    cpu    = 4
    memory = "16GiB"
  }

  # What is believed about throughput before anything was measured. Intervals under full load refit it as the job runs.
  # async: f(w) = w / (theta0 + theta1/w + theta2 * w) records per second (Kale Eq. 9).
  throughput {
    form   = "async"
    theta  = [0.000566, 0.000224, 1.41e-21]
    source = "Kale, published fit for async training on A10"
  }

  forecast {
    interval = "1m"
    horizon  = "30m"           # more than tau and the time in which a worker joins
    season   = ["24h", "7d"]   # days, and weekends
    timezone = "Europe/Berlin" # when clocks are put forward or back there, so is the day's course
    history  = "14d"           # read back from the broker on start, as far as its retention goes
    model    = "seasonal"      # or "ensemble", or the path of an .onnx file from `kale forecast train`

    # A model file that forecast the last two hours worse than "seasonal" by more than a tenth, and by more than 1 % of the
    # traffic (less moves no worker), is not used.
    gate_window    = "2h"
    gate_tolerance = 0.1

    # Once a day a model is trained from what has arrived, beside the scheduler. It is used where it is better on recent traffic than what is in use.
    retrain = "24h"

    # Days of a kind of their own, whatever weekday they fall on: public holidays of a region ("us", "de", "de-by"), days of one year ("2026-12-24") or of
    # every year ("12-24"), stretches, iCalendar files ("company.ics"). Their course of the day is that of past holidays in the history, as far as it has any,
    # and till then that of a Sunday. One that is not kept, or by some only, is seen in its first hours; a workday between a holiday and a weekend counts as half of one.
    holidays        = ["de", "12-24", "12-31", { name = "works outing", on = "2026-08-14", uplift = 0.6 }]
    holidays_except = ["Tag der Arbeit"] # ordinary days here, by name
    holidays_like   = "sunday"
    holidays_learn  = true

    # What people know and the past does not tell: a sale, a campaign (what comes is uplift times the usual), a maintenance in which nothing comes (uplift 0).
    # Times without a zone are on the clock of timezone. An event that does not come, or more weakly or strongly, is taken as it comes after its first bins.
    events = [
      { name = "autumn sale", from = "2026-09-25T18:00", to = "2026-09-28T00:00", uplift = 1.8 },
      { name = "moving house", from = "2026-10-11T02:00", to = "2026-10-11T05:00", uplift = 0 },
    ]
    events_fade = true
  }

  autoscale {
    policy = "kale" # or "cost" (least expected cost), "static" (always max), a rival: kale help jobfile lists them
    mode   = "live" # or "restart" (pause, checkpoint, start again), or "observe" (decide, record, touch nothing)

    rho      = 1     # a change of fewer workers is none
    tau      = "10m" # a change that lasts less long is smoothed away
    headroom = 0.1   # capacity above the forecast

    cooldown_out = "1m"
    cooldown_in  = "5m"

    tick  = "60s" # decide
    watch = "5s"  # look at lag and membership

    place_timeout = "10m" # then want no more workers than the cluster has room for

    # What corrects the plan: lag and, where GPUs tell it, how busy they are.
    fallback {
      lag_over          = "10m"
      utilisation_over  = 0.9
      utilisation_under = 0.3
    }
  }

  checkpoint {
    dir   = var.checkpoints
    every = "10m"
    keep  = 2
  }

  # Only where processes run on several machines (or with a port of the scheduler's own).
  network {
    # interface = "10.0.0.0/8"      # or "ib0"; otherwise by the machines' routes
    # listen    = ":7700"           # where trainers ask the scheduler for the chief
    # advertise = "login-1:7700"    # how the nodes reach it
    # ports     = "20000-20999"     # of trainers
  }

  # The plugin kale-backend-local reads this block: processes on this machine.
  backend "local" {
    gpus = "auto" # the GPUs that are found, else slots; "none" takes slots without looking

    # env = { OMP_NUM_THREADS = "4" }
  }
}
