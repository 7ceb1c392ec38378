import { ActionIcon, Button, Table, Tooltip } from '@mantine/core'
import { IconX } from '@tabler/icons-react'
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

/** Trainings that are attached or have ended, and dumps that are open; the newest first. */
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
        {[...sessions].reverse().map((one) => {
          const isBusy = isAttached(one)
          const label = t(one.capabilities.live ? 'forget' : 'close', { name: one.name })
          const closeWhy = one.fresh ? 'closeOfScriptWhy' : 'closeWhy'
          const why = t(isBusy ? 'attached' : one.capabilities.live ? 'forgetWhy' : closeWhy)
          return (
            <Table.Tr
              key={one.id}
              data-testid="session-row"
              data-id={one.id}
              className={classes['row'] ?? ''}
              onClick={() => openRun(one.id)}
            >
              <Table.Td className={classes['name'] ?? ''}>
                <div className={classes['line']} title={one.name}>
                  {one.name}
                </div>
                {one.fresh && <div className={classes['note']}>{t('ofScript')}</div>}
                {one.message && (
                  <div className={`${classes['note'] ?? ''} ${classes['short'] ?? ''}`} title={one.message}>
                    {one.message}
                  </div>
                )}
              </Table.Td>
              <Table.Td>
                <StateBadge state={one.state} message={one.message} />
              </Table.Td>
              <Table.Td className={classes['number'] ?? ''}>{one.step}</Table.Td>
              <Table.Td className={classes['number'] ?? ''} data-hits={one.hits > 0}>
                {one.hits}
              </Table.Td>
              <Table.Td className={classes['number'] ?? ''}>{one.ranks.length}</Table.Td>
              <Table.Td className={classes['line'] ?? ''} title={`${one.framework} ${one.framework_version}`}>
                {one.framework} {one.framework_version}
              </Table.Td>
              <Table.Td title={moment(one.created)}>{ago(one.created)}</Table.Td>
              <Table.Td>
                <div className={classes['buttons']}>
                  <Button
                    size="compact-xs"
                    onClick={(event) => {
                      event.stopPropagation()
                      openRun(one.id)
                    }}
                  >
                    {t('show')}
                  </Button>
                  <Compare name={one.name} compare={() => compareRun(one.id)} />
                  <Tooltip label={why}>
                    <ActionIcon
                      size="sm"
                      aria-label={label}
                      aria-disabled={isBusy}
                      style={isBusy ? { opacity: 0.35, cursor: 'not-allowed' } : {}}
                      loading={isPending && variables === one.id}
                      onClick={(event) => {
                        event.stopPropagation()
                        if (!isBusy) close(one.id)
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
