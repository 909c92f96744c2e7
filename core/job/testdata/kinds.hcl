# Values of the wrong kind.
job "ctr" {
  stream "kafka" {
    brokers = "localhost:9092"
    topic   = null
    tls {
      insecure_skip_verify = "maybe"
    }
  }
  features {
    label  = ["click"]
    sparse = [["user"], "item"]
    dense  = { price = 1 }
  }
  workers {
    max = [4]
    cpu = null
  }
  throughput {
    theta = 0.0002
  }
  checkpoint {
    dir   = true
    every = ["10m"]
  }
  backend "local" {
  }
}
