const LOOPBACK = ['localhost', '127.0.0.1', '[::1]', '::1']

export interface Attachment {
  host: string
  port: string
}

/**
 * Return the address to which a training attaches. If the server accepts trainings of other machines, the commands work
 * there, too: with the host by which this page was reached from another machine, otherwise with the server's name.
 */
export function attachment(here: string, elsewhere: string | null, pageHost: string): Attachment {
  const address = elsewhere ?? here
  const end = address.lastIndexOf(':')
  const listensEverywhere = elsewhere !== null && elsewhere !== here
  const host = listensEverywhere && !LOOPBACK.includes(pageHost) ? pageHost : address.slice(0, end)
  return { host: LOOPBACK.includes(host) ? 'localhost' : host, port: address.slice(end + 1) }
}

/** Placeholder for the access token in a command: the page does not show the token. */
export const TOKEN = 'TOKEN'

/** Return the commands that start an attached training; none for MindSpore's own client if a token is needed. */
export function startCommands({ host, port }: Attachment, needsToken: boolean) {
  const where = host === 'localhost' ? `--port ${port}` : `--host ${host} --port ${port}`
  const address = host === 'localhost' ? '127.0.0.1' : host
  const token = needsToken ? `TENSIGHT_TOKEN=${TOKEN} ` : ''
  return {
    recommended: `${token}tensight run ${where} --recommended train.py`,
    atStart: `${token}tensight run ${where} --break-at-start train.py`,
    operators: `${token}tensight run ${where} --break-at-start --capture ops train.py`,
    environment: `${token}TENSIGHT_DEBUG=1 TENSIGHT_DEBUGGER_HOST=${address} TENSIGHT_DEBUGGER_PORT=${port} TENSIGHT_BREAK_AT_START=1 python train.py`,
    original: needsToken
      ? null
      : `ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST=${address} MS_DEBUGGER_PORT=${port} python train.py`,
  }
}
