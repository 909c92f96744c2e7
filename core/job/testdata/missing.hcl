# What must be there and is not.
job "ctr" {
  stream "kafka" {
    sasl {
      username = "kale"
    }
  }
  model {
    optimiser {
    }
  }
  features {
    label = "click"
  }
}
