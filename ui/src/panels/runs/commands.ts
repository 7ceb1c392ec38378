const LOOPBACK = ['localhost', '127.0.0.1', '[::1]', '::1']
const EVERYWHERE = ['0.0.0.0', '[::]', '::', '']

export interface Attachment {
  host: string
  port: string
}

/** Where a training has to attach, as seen from the machine of the browser's server. */
export function attachment(debuggerAddress: string, pageHost: string): Attachment {
  const end = debuggerAddress.lastIndexOf(':')
  const host = debuggerAddress.slice(0, end)
  const port = debuggerAddress.slice(end + 1)
  const reached = EVERYWHERE.includes(host) ? pageHost : host
  return { host: LOOPBACK.includes(reached) ? 'localhost' : reached, port }
}

/** The commands that start a training which attaches there. */
export function startCommands({ host, port }: Attachment) {
  const where = host === 'localhost' ? `--port ${port}` : `--host ${host} --port ${port}`
  const address = host === 'localhost' ? '127.0.0.1' : host
  return {
    atStart: `tensight run ${where} --break-at-start train.py`,
    operators: `tensight run ${where} --break-at-start --capture ops train.py`,
    recommended: `tensight run ${where} --recommended train.py`,
    environment: `TENSIGHT_DEBUG=1 TENSIGHT_DEBUGGER_HOST=${address} TENSIGHT_DEBUGGER_PORT=${port} TENSIGHT_BREAK_AT_START=1 python train.py`,
    original: `ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST=${address} MS_DEBUGGER_PORT=${port} python train.py`,
  }
}
