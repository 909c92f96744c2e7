# Addresses, ports and interfaces.
job "ctr" {
  stream "kafka" {
    brokers = ["kafka-1:9092"]
    topic   = "clicks"
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
  network {
    interface = "10.1.2.3/8"
    listen    = "7700"
    advertise = "0.0.0.0:7700"
    ports     = "20999-20000"
    port      = 1
  }
  backend "local" {
  }
}
