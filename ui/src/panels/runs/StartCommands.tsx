import { Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { useServer } from '~/api/queries'
import { CopyButton } from '~/parts/CopyButton'
import { attachment, startCommands, TOKEN } from './commands'
import classes from './runs.module.css'
import { runsTexts } from './texts'

const LISTED = ['recommended', 'atStart', 'operators', 'environment', 'original'] as const

/** The commands that start a training attached to this server, ready to copy. */
export function StartCommands() {
  const { t } = useTranslation(runsTexts)
  const { data: server } = useServer()
  if (!server) return null
  const address = server.debugger_address
  if (!address) return <Text c="var(--quiet)">{t('noTrainings')}</Text>
  const where = attachment(address, server.debugger_elsewhere, window.location.hostname)
  const commands = startCommands(where, server.debugger_needs_token)
  return (
    <>
      <Text c="var(--quiet)">{t('startText', { address: `${where.host}:${where.port}` })}</Text>
      {server.debugger_needs_token && <Text c="var(--quiet)">{t('startToken', { token: TOKEN })}</Text>}
      {LISTED.map((name) => {
        const command = commands[name]
        return command && <Command key={name} label={t(name)} command={command} />
      })}
      <Text c="var(--quiet)" mt="sm">
        {t('demo')}
      </Text>
      <Command label="" command="tensight demo" />
    </>
  )
}

function Command({ label, command }: { label: string; command: string }) {
  const { t } = useTranslation(runsTexts)
  return (
    <div className={classes['command']}>
      {label && <div className={classes['label']}>{label}</div>}
      <div className={classes['code']}>
        <code>{command}</code>
        <CopyButton text={command} label={t('copy')} />
      </div>
    </div>
  )
}
