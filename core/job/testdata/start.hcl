# A start in the future, and a password in plain text.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
    start   = "10m"
    sasl {
      mechanism = "plain"
      username  = "kale"
      password  = env("KAFKA_PASSWORD", "x")
    }
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
