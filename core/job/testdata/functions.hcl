# Functions that fail.
job "ctr" {
  stream "kafka" {
    brokers = split(",", env("KAFKA_BROKERS"))
    topic   = uper("clicks")
    sasl {
      mechanism = "scram-sha-512"
      username  = "kale"
      password  = file("password.txt")
    }
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  workers {
    min = rand(1, 4)
    max = max("a", 2)
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  checkpoint {
    dir = file(".")
  }
  backend "local" {
    slots = var.slots
    token = env("TOKEN")
  }
}
