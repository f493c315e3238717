// Starts the language server that the setting agentflow.command names, and speaks with it.
const { window, workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function start() {
  const [command, ...args] = workspace.getConfiguration("agentflow").get("command");
  const folder = workspace.workspaceFolders?.[0]?.uri.fsPath;
  const server = { command, args, options: { cwd: folder } };
  client = new LanguageClient("agentflow", "agentflow", server, {
    documentSelector: [{ language: "agentflow" }, { language: "python" }],
  });
  try {
    await client.start();
  } catch (error) {
    window.showErrorMessage(`${command} did not start (${error.message}): pip install 'agentflow[cli,lsp]'`);
  }
}

exports.activate = async (context) => {
  context.subscriptions.push(
    workspace.onDidChangeConfiguration(async (event) => {
      if (!event.affectsConfiguration("agentflow.command")) return;
      await client?.stop().catch(() => {});
      await start();
    }),
  );
  await start();
};

exports.deactivate = () => client?.stop();
