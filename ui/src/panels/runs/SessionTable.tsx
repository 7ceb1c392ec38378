import { ActionIcon, Button, Table, Tooltip } from '@mantine/core'
import { IconX } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import type { Session } from '~/api/types'
import { StateBadge } from '~/parts/StateBadge'
import { ago, moment } from '~/parts/times'
import { useView } from '~/state/store'
import { useCloseRun } from './queries'
import classes from './runs.module.css'
import { runsTexts } from './texts'
import { compareRun, Compare } from './Compare'
import { isAttached } from './useArrival'

/** Attached and ended trainings, and open dumps, newest first. */
export function SessionTable({ sessions }: { sessions: Session[] }) {
  const { t } = useTranslation(runsTexts)
  const openRun = useView((view) => view.openRun)
  const { mutate: close, isPending, variables } = useCloseRun()
  return (
    <Table highlightOnHover className={classes['table'] ?? ''} layout="fixed">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('name')}</Table.Th>
          <Table.Th w={124}>{t('state')}</Table.Th>
          <Table.Th w={70}>{t('step')}</Table.Th>
          <Table.Th w={60}>{t('hits')}</Table.Th>
          <Table.Th w={60}>{t('ranks')}</Table.Th>
          <Table.Th w={130}>{t('framework')}</Table.Th>
          <Table.Th w={120}>{t('started')}</Table.Th>
          <Table.Th w={128} aria-label={t('show')} />
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {[...sessions].reverse().map((session) => {
          const isBusy = isAttached(session)
          const label = t(session.capabilities.live ? 'forget' : 'close', { name: session.name })
          const closeWhy = session.fresh ? 'closeOfScriptWhy' : 'closeWhy'
          const why = t(isBusy ? 'attached' : session.capabilities.live ? 'forgetWhy' : closeWhy)
          return (
            <Table.Tr
              key={session.id}
              data-testid="session-row"
              data-id={session.id}
              className={classes['row'] ?? ''}
              onClick={() => openRun(session.id)}
            >
              <Table.Td className={classes['name'] ?? ''}>
                <div className={classes['line']} title={session.name}>
                  {session.name}
                </div>
                {session.fresh && <div className={classes['note']}>{t('ofScript')}</div>}
                {session.message && (
                  <div
                    className={`${classes['note'] ?? ''} ${classes['short'] ?? ''}`}
                    title={session.message}
                  >
                    {session.message}
                  </div>
                )}
              </Table.Td>
              <Table.Td>
                <StateBadge state={session.state} message={session.message} />
              </Table.Td>
              <Table.Td className={classes['number'] ?? ''}>{session.step}</Table.Td>
              <Table.Td className={classes['number'] ?? ''} data-hits={session.hits > 0}>
                {session.hits}
              </Table.Td>
              <Table.Td className={classes['number'] ?? ''}>{session.ranks.length}</Table.Td>
              <Table.Td
                className={classes['line'] ?? ''}
                title={`${session.framework} ${session.framework_version}`}
              >
                {session.framework} {session.framework_version}
              </Table.Td>
              <Table.Td title={moment(session.created)}>{ago(session.created)}</Table.Td>
              <Table.Td>
                <div className={classes['buttons']}>
                  <Button
                    size="compact-xs"
                    onClick={(event) => {
                      event.stopPropagation()
                      openRun(session.id)
                    }}
                  >
                    {t('show')}
                  </Button>
                  <Compare name={session.name} compare={() => compareRun(session.id)} />
                  <Tooltip label={why}>
                    <ActionIcon
                      size="sm"
                      aria-label={label}
                      aria-disabled={isBusy}
                      style={isBusy ? { opacity: 0.35, cursor: 'not-allowed' } : {}}
                      loading={isPending && variables === session.id}
                      onClick={(event) => {
                        event.stopPropagation()
                        if (!isBusy) close(session.id)
                      }}
                    >
                      <IconX size={14} />
                    </ActionIcon>
                  </Tooltip>
                </div>
              </Table.Td>
            </Table.Tr>
          )
        })}
      </Table.Tbody>
    </Table>
  )
}
