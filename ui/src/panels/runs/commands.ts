const LOOPBACK = ['localhost', '127.0.0.1', '[::1]', '::1']
const EVERYWHERE = ['0.0.0.0', '[::]', '::', '']

export interface Attachment {
  host: string
  port: string
}

/** Return the address to which a training attaches, as seen from the host that serves the page. */
export function attachment(debuggerAddress: string, pageHost: string): Attachment {
  const end = debuggerAddress.lastIndexOf(':')
  const host = debuggerAddress.slice(0, end)
  const port = debuggerAddress.slice(end + 1)
  const reached = EVERYWHERE.includes(host) ? pageHost : host
  return { host: LOOPBACK.includes(reached) ? 'localhost' : reached, port }
}

/** Placeholder for the access token in a command: the page does not show the token. */
export const TOKEN = 'TOKEN'

/** Return the commands that start an attached training; none for MindSpore's own client if a token is needed. */
export function startCommands({ host, port }: Attachment, needsToken: boolean) {
  const where = host === 'localhost' ? `--port ${port}` : `--host ${host} --port ${port}`
  const address = host === 'localhost' ? '127.0.0.1' : host
  const token = needsToken ? `TENSIGHT_TOKEN=${TOKEN} ` : ''
  return {
    atStart: `${token}tensight run ${where} --break-at-start train.py`,
    operators: `${token}tensight run ${where} --break-at-start --capture ops train.py`,
    recommended: `${token}tensight run ${where} --recommended train.py`,
    environment: `${token}TENSIGHT_DEBUG=1 TENSIGHT_DEBUGGER_HOST=${address} TENSIGHT_DEBUGGER_PORT=${port} TENSIGHT_BREAK_AT_START=1 python train.py`,
    original: needsToken
      ? null
      : `ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST=${address} MS_DEBUGGER_PORT=${port} python train.py`,
  }
}
